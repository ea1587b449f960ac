"""torch_xla.experimental.xla_sharding: torch_xla.distributed.spmd, as 2.1 and before called it."""

from __future__ import annotations

from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import HybridMesh as HybridMesh
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import Mesh as Mesh
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import ShardingSpec as ShardingSpec
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import ShardingType as ShardingType
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import (
    annotate_custom_sharding as annotate_custom_sharding,
)
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import (
    apply_backward_optimization_barrier as apply_backward_optimization_barrier,
)
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import (
    apply_xla_patch_to_nn_linear as apply_xla_patch_to_nn_linear,
)
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import (
    clear_sharding as clear_sharding,
)
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import (
    disable_manual_sharding as disable_manual_sharding,
)
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import (
    enable_manual_sharding as enable_manual_sharding,
)
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import get_1d_mesh as get_1d_mesh
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import (
    get_global_mesh as get_global_mesh,
)
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import mark_sharding as mark_sharding
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import (
    mark_sharding_with_gradients as mark_sharding_with_gradients,
)
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import (
    set_global_mesh as set_global_mesh,
)
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import shard_as as shard_as
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import (
    wrap_if_sharded as wrap_if_sharded,
)
from xla_dynamo.compat.torch_xla.distributed.spmd.xla_sharding import (
    xla_patched_nn_linear_forward as xla_patched_nn_linear_forward,
)
