"""torch_xla.debug: metrics and the profiler."""

from __future__ import annotations
