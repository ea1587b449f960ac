"""torch_xla.core: the device, its barrier, collectives."""

from __future__ import annotations
