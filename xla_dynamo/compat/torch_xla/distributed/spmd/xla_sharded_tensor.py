"""Tensors sharded over devices; over one device, a plain tensor is its own only shard.

Also torch_xla.distributed.spmd.debugging.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from xla_dynamo.compat.recording import devices

from .xla_sharding import ShardingType, sharding_of


@dataclass
class XLAShard:
    """The part of a tensor on one device."""

    data: torch.Tensor
    indices: Any
    shard_device: str
    replica_id: int

    @property
    def unpadded_data(self) -> torch.Tensor:
        """The part without padding."""
        return self.data


class _Sharded(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and sharding_of(instance) is not None


class XLAShardedTensor(metaclass=_Sharded):
    """XLAShardedTensor(t) is `t`; isinstance says whether a tensor was marked."""

    def __new__(cls, elem: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return elem


def sharding_type(t: torch.Tensor) -> ShardingType | None:
    """REPLICATED for a tensor that was marked."""
    return None if sharding_of(t) is None else ShardingType.REPLICATED


def visualize_tensor_sharding(t: torch.Tensor, **kwargs: Any) -> str:
    """Print and give the device of a tensor."""
    return visualize_sharding(f"{devices.real(t.device)}: {list(t.shape)}")


def visualize_sharding(sharding: str, **kwargs: Any) -> str:
    """Print and give a sharding."""
    print(sharding)
    return sharding
