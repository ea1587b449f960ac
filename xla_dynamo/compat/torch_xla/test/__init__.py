"""torch_xla.test: what official example scripts print."""

from __future__ import annotations
