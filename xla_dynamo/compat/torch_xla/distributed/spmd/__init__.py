"""torch_xla.distributed.spmd: programs partitioned over devices."""

from __future__ import annotations

from ._meshes import *  # noqa: F403
from .api import *  # noqa: F403
from .xla_sharded_tensor import *  # noqa: F403
from .xla_sharding import *  # noqa: F403
from .xla_sharding import _mark_manual_sharding as _mark_manual_sharding
