"""StableHLO module in, torch tensors through it: devices, buffers, executables, the disk cache.

Nothing here knows about FX or aten.
"""

from __future__ import annotations

from . import buffers, cache, pjrt

__all__ = ["buffers", "cache", "pjrt"]
