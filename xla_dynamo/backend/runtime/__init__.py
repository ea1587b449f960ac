"""Devices, buffers, executables of StableHLO modules, and their disk cache.

Nothing here knows about FX or ATen.
"""

from __future__ import annotations

from . import buffers, cache, pjrt

__all__ = ["buffers", "cache", "pjrt"]
