"""State_dicts whose tensors lie in parts on devices, or as those parts on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
from torch.utils import _pytree as pytree

from xla_dynamo.compat.device import step_barrier

from ..._sharding import ShardingType
from ...distributed.spmd.xla_sharded_tensor import XLAShard, XLAShardedTensor
from ...distributed.spmd.xla_sharding import unwrap_sharded_tensor, wrap_if_sharded

Indices = Sequence[slice]


@dataclass
class _CpuShards:
    """The parts of a tensor that this process has, each once, on the CPU."""

    shards: list[XLAShard]
    global_shape: torch.Size


def unwrapped(state_dict: Any) -> Any:
    """A state_dict with plain tensors for XLAShardedTensors."""
    return pytree.tree_map_only(XLAShardedTensor, unwrap_sharded_tensor, state_dict)


def split(state_dict: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entries of a flat state_dict that lie in parts, and the others."""
    wrapped = {name: wrap_if_sharded(value) for name, value in state_dict.items()}
    parts = {
        name: value
        for name, value in wrapped.items()
        if _is_sharded_tensor(value) or isinstance(value, _CpuShards)
    }
    return parts, {name: value for name, value in state_dict.items() if name not in parts}


def _is_sharded_tensor(x: Any) -> bool:
    """Whether each device has but a part of a tensor."""
    return isinstance(x, XLAShardedTensor) and x.sharding_type != ShardingType.REPLICATED


def _sharded_cpu_state_dict(state_dict: Any) -> Any:
    """A copy of a state_dict on the CPU: tensors that lie in parts as `_CpuShards`."""

    def move(value: torch.Tensor) -> Any:
        wrapped = wrap_if_sharded(value)
        if not _is_sharded_tensor(wrapped):
            return unwrap_sharded_tensor(value).detach().cpu()
        own = [shard for shard in wrapped.local_shards if shard.replica_id == 0]
        return _CpuShards(own, value.shape)

    tensors = [t for t in pytree.tree_leaves(state_dict) if isinstance(t, torch.Tensor)]
    step_barrier.sync([unwrap_sharded_tensor(t) for t in tensors])
    return pytree.tree_map_only(torch.Tensor, move, state_dict)


def chunk(indices: Indices) -> ChunkStorageMetadata:
    """A part, as torch.distributed.checkpoint names it."""
    return ChunkStorageMetadata(
        offsets=torch.Size(index.start for index in indices),
        sizes=torch.Size(index.stop - index.start for index in indices),
    )
