"""torch_xla.amp: mixed precision."""

from __future__ import annotations
