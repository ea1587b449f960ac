"""torch_xla.distributed: loaders, processes, sharding."""

from __future__ import annotations
