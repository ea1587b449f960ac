"""torch_xla._internal: what libraries reach for."""

from __future__ import annotations
