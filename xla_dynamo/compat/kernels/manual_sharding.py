"""Shards in SPMD mode: between `enter` and `leave`, each device computes with its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.ops.sharding import ENTER, LEAVE
from xla_dynamo.backend.runtime.shardings import Sharding
from xla_dynamo.compat.execution import spmd
from xla_dynamo.compat.recording import replicas
from xla_dynamo.compat.recording.trace import Trace, trace_of
from xla_dynamo.compat.values.trie import metas_in
from xla_dynamo.compat.values.values import Ref, leaf_of
from xla_dynamo.lazily import lazily

from . import sharding as kernel

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import partitions
else:
    partitions = lazily("xla_dynamo.backend.runtime.partitions", globals())


def enter(tensor: torch.Tensor, sharding: Sharding) -> torch.Tensor:
    """The shard of a tensor, whose dimensions are padded to have equal parts."""
    shape, padded = tuple(tensor.shape), sharding.padded(tensor.shape)
    if padded != shape:
        ends = [wanted - size for size, wanted in zip(shape, padded, strict=True)]
        after = [end for each in reversed(ends) for end in (0, each)]
        tensor = torch.nn.functional.pad(tensor, after)
    return ENTER(tensor, sharding.attribute(), sharding.part(shape))


def leave(shard: torch.Tensor, sharding: Sharding, shape: Sequence[int]) -> torch.Tensor:
    """The tensor of `shape` whose shards these are, without their padding.

    Raises:
        RuntimeError: a shard has not the shape of a part.
    """
    if tuple(shard.shape) != sharding.part(shape):
        raise RuntimeError(
            f"a shard of shape {tuple(shard.shape)} is no part of a tensor of shape {tuple(shape)} "
            f"that is split as {sharding.text()}: that has shape {sharding.part(shape)}"
        )
    whole = LEAVE(shard, sharding.attribute(), sharding.padded(shape))
    return whole[tuple(slice(size) for size in shape)] if whole.shape != tuple(shape) else whole


def is_manual(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a shard, of which each device has its own."""
    leaf = leaf_of(tensor) if spmd.where() is not None else None
    if leaf is None:
        return False
    value = leaf.value
    if value.array is not None:
        split = kernel.split_of(tensor)
        return split is not None and split.role == "manual"
    ref = value.ref
    return type(ref) is Ref and ref.meta is None and ref.index in _pending(trace_of(value))


def group_size(tensor: torch.Tensor) -> int:
    """Among how many a collective of a tensor is: all devices, of a shard; else all replicas."""
    on = spmd.where()
    return len(on.devices) if on is not None and is_manual(tensor) else replicas.size()


def _pending(trace: Trace) -> set[int]:
    """Which of the values of a trace are shards."""
    found: set[int] = set()
    made = 0

    def is_shard(ref: Any) -> bool:
        if type(ref) is not Ref:
            return False
        if ref.meta is None:
            return ref.index in found
        split = partitions.sharding_of(trace.inputs[ref.index].array)
        return split is not None and split.role == "manual"

    for state in trace.state.path():
        count = len(list(metas_in(state.outputs)))
        taken = any(map(is_shard, pytree.tree_leaves((state.args, state.kwargs))))
        if state.op.func is ENTER or (taken and state.op.func is not LEAVE):
            found.update(range(made, made + count))
        made += count
    return found
