"""torch_xla.experimental."""

from __future__ import annotations
