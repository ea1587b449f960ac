"""torch_xla.experimental.xla_sharded_tensor: of torch_xla.distributed.spmd."""

from __future__ import annotations

from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharded_tensor import XLAShard as XLAShard
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharded_tensor import (
    XLAShardedTensor as XLAShardedTensor,
)
