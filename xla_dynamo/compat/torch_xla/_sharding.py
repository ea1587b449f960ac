"""What SPMD shardings say of tensors, over the devices of this process: one, so far.

A tensor that is marked is its own only shard: replicated, whatever its partition specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from xla_dynamo.compat.recording import metrics

ShardingType = IntEnum(  # how a tensor lies on the devices
    "ShardingType", "REPLICATED MAXIMAL TUPLE TILED MANUAL PARTIAL UNKNOWN", start=0
)


@dataclass(frozen=True)
class OpSharding:
    """A sharding as XLA takes it: devices by tile, groups of tiles, replicas in each, the type."""

    tile_assignment: Sequence[Any]
    group_assignment: Sequence[Any]
    replication_groups: Sequence[Any]
    sharding_type: int

    def __post_init__(self) -> None:
        metrics.count("CreateOpSharding")


_marks: Any = WeakTensorKeyDictionary()  # tensor -> OpSharding


def plain(t: torch.Tensor) -> torch.Tensor:
    """The tensor that was marked, of an XLAShardedTensor; another one itself."""
    return getattr(t, "global_tensor", t)


def mark(t: torch.Tensor, sharding: OpSharding) -> None:
    """Say how a tensor lies on the devices."""
    _marks[plain(t)] = sharding


def clear(t: torch.Tensor) -> None:
    """Forget it."""
    _marks.pop(plain(t), None)


def sharding_of(t: torch.Tensor) -> OpSharding | None:
    """What `mark` said."""
    return _marks.get(plain(t))


def spec_of(t: torch.Tensor) -> str:
    """The sharding as HLO writes it; empty if there is none."""
    return "" if sharding_of(t) is None else "{replicated}"


def specs_of(tensors: Sequence[torch.Tensor]) -> list[str]:
    """`spec_of` each."""
    return [spec_of(t) for t in tensors]


def type_of(t: torch.Tensor) -> int | None:
    """The sharding's type; None if there is none."""
    return None if sharding_of(t) is None else int(ShardingType.REPLICATED)


def from_cpu_shards(
    shards: Sequence[torch.Tensor], sharding: OpSharding, global_shape: Sequence[int] | None = None
) -> torch.Tensor:
    """The tensor whose shards these are: the only one, without what is padding for `global_shape`.

    Raises:
        RuntimeError: there are several, or the shape does not fit.
    """
    if len(shards) != 1:
        raise RuntimeError(f"Expected one shard for each of 1 devices, got {len(shards)}")
    shape = tuple(shards[0].shape if global_shape is None else global_shape)
    padded = sharding.sharding_type != ShardingType.REPLICATED
    fits = len(shape) == shards[0].dim() and all(
        size <= own if padded else size == own
        for size, own in zip(shape, shards[0].shape, strict=True)
    )
    if not fits:
        raise RuntimeError(
            f"A shard of shape {tuple(shards[0].shape)} does not make a tensor of shape {shape}"
        )
    result = shards[0][tuple(slice(size) for size in shape)].to("xla")
    mark(result, sharding)
    return result
