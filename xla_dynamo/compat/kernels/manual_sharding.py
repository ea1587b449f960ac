"""Shards in SPMD mode: between `enter` and `leave`, each device computes with its own.

Gradients are those of the whole tensors: what a device computes with a part that others have, too,
counts once for each, and where equal shards leave, each has its share of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from xla_dynamo.errors import NotAvailable
from xla_dynamo.lazily import lazily

from . import sharding as kernel

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import partitions
else:
    partitions = lazily("xla_dynamo.backend.runtime.partitions", globals())


Map = Callable[[torch.Tensor], torch.Tensor]
_ALL_REDUCE = torch.ops.xla_dynamo.all_reduce.default


def enter(tensor: torch.Tensor, sharding: Sharding) -> torch.Tensor:
    """The shard of a tensor, whose dimensions are padded to have equal parts."""
    shape, padded = tuple(tensor.shape), sharding.padded(tensor.shape)
    if padded != shape:
        ends = [wanted - size for size, wanted in zip(shape, padded, strict=True)]
        after = [end for each in reversed(ends) for end in (0, each)]
        tensor = torch.nn.functional.pad(tensor, after)
    out, add = _leave(sharding, padded), _sum_of_copies(sharding)
    return through(tensor, _enter(sharding), lambda g: out(add(g)), enters=True)


def leave(shard: torch.Tensor, sharding: Sharding, shape: Sequence[int]) -> torch.Tensor:
    """The tensor of `shape` whose shards these are, without their padding.

    Raises:
        RuntimeError: a shard has not the shape of a part.
        NotAvailable: a gradient would flow to a tensor that has not entered.
    """
    _check_gradients(shard)
    if tuple(shard.shape) != sharding.part(shape):
        raise RuntimeError(
            f"a shard of shape {tuple(shard.shape)} is no part of a tensor of shape {tuple(shape)} "
            f"that is split as {sharding.text()}: that has shape {sharding.part(shape)}"
        )
    padded = sharding.padded(shape)
    copies = sharding.tiles.shape[-1]
    # Of equal shards one is taken: that each has its share of the gradient comes to the same.
    whole = through(shard, _leave(sharding, padded), lambda g: _enter(sharding)(g) / copies)
    return whole[tuple(slice(size) for size in shape)] if padded != tuple(shape) else whole


def _check_gradients(shard: torch.Tensor) -> None:
    """Raise if a whole tensor would get a gradient of each device, of its shard alone."""
    seen: set[Any] = {None}
    left: list[Any] = [shard.grad_fn]
    while left:
        node = left.pop()
        if node in seen or getattr(node, "enters", False):
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and not is_manual(leaf):
            raise NotAvailable(
                f"a tensor of shape {tuple(leaf.shape)} that requires a gradient is used between "
                "xs.enable_manual_sharding and xs.disable_manual_sharding as it is: its gradient "
                "would be another one on each device. Let it enter, too, as it is split; with None "
                "for each dimension all devices have it, and their gradients are summed"
            )
        left.extend(before for before, _ in node.next_functions)


def _enter(sharding: Sharding) -> Map:
    return lambda whole: ENTER(whole, sharding.attribute(), sharding.part(whole.shape))


def _leave(sharding: Sharding, shape: Sequence[int]) -> Map:
    return lambda shard: LEAVE(shard, sharding.attribute(), shape)


def _sum_of_copies(sharding: Sharding) -> Map:
    """Sums the values of the devices that have the same part of a tensor."""
    devices, copies = sharding.tiles.reshape(-1).tolist(), sharding.tiles.shape[-1]
    return lambda x: x if copies == 1 else _ALL_REDUCE([x], "sum", devices, copies)[0]


def through(
    value: torch.Tensor, there: Map, back: Map | None, *, enters: bool = False
) -> torch.Tensor:
    """What the linear map `there` makes of a value; its transpose `back` makes the gradient.

    back: None if there is no gradient.

    Raises:
        NotAvailable: a gradient would be needed.
    """
    if not (value.requires_grad and torch.is_grad_enabled()):
        return there(value)
    if back is None:
        raise NotAvailable(
            "of the collectives among shards, sums have gradients, and those that move values; a "
            "maximum, minimum or product has none: detach() what it takes"
        )
    result: Any = _Linear.apply(value, there, back, enters)
    return result


class _Linear(torch.autograd.Function):
    """A linear map; its gradient is its transpose, whose gradient is the map."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, there: Map, back: Map, enters: bool) -> Any:  # pyright: ignore
        ctx.there, ctx.back, ctx.enters = there, back, enters
        return there(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # pyright: ignore
        return through(gradient, ctx.back, ctx.there), None, None, None


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
