"""torch_xla.experimental.xla_sharded_tensor: of torch_xla.distributed.spmd."""

from __future__ import annotations

from ..distributed.spmd.xla_sharded_tensor import XLAShard as XLAShard
from ..distributed.spmd.xla_sharded_tensor import XLAShardedTensor as XLAShardedTensor
