"""torch.cat of what grows from step to step: the predictions of an evaluation, say.

As an op of the step, `predictions = torch.cat([predictions, output])` would have another shape, and
the step another program, each time. Where a tensor is seen to grow so, the op is not recorded: its
result refers to its parts. They are joined where it is read, by the host; or where another op uses
it, by the op that is recorded then.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.bounded import Bounded
from xla_dynamo.compat.recording import metrics
from xla_dynamo.compat.recording.trace import trace_of
from xla_dynamo.compat.recording.trace_bounds import policy
from xla_dynamo.compat.values.op_table import Op, handles
from xla_dynamo.compat.values.values import Joined, Leaf, Meta, Value, leaf, meta

from . import sync
from .dispatch import record

# Parts of a result; beyond, those that are computed become one.
_PARTS = 256
# The least size that a join gave, by the metas of all parts but the first: it grows if it has that.
_least: Bounded[tuple[int, tuple[Meta, ...]], int] = Bounded(1024)


@handles(torch.ops.aten.cat.default)
def _cat(op: Op, args: Any, kwargs: Any) -> Any:
    first = args[0][0] if args[0] else None
    if type(first) is Leaf and not kwargs and not policy.each_op:
        value = first.value
        # It is of an earlier step, or the loop has no barriers.
        if value.array is not None or type(value.ref) is Joined or trace_of(value).follows:
            made = _put_off(value, args[0], *args[1:])
            if made is not None:
                return leaf(made)
    return record(op, args, kwargs)


def _put_off(grown: Value, tensors: Sequence[Any], dim: int = 0) -> Value | None:
    """The result of joining `tensors`, of which `grown` is the first, if that keeps growing."""
    if any(type(tensor) is not Leaf or tensor.value.home is not grown.home for tensor in tensors):
        return None
    metas = tuple([tensor.value.meta for tensor in tensors])
    dim = dim % max(len(grown.meta.shape), 1)
    result = _joined(metas, dim)
    if result is None:
        return None
    size = result.shape[dim]
    least = _least.get((dim, metas[1:]), size + 1)
    if size < least:
        _least[dim, metas[1:]] = size
    if grown.meta.shape[dim] < least:
        return None
    known = grown.ref
    parts = known.parts if type(known) is Joined and known.dim == dim else (grown,)
    metrics.count("xla::cat")
    metrics.count("CreateXlaTensor")
    parts = (*_few(parts, dim), *[tensor.value for tensor in tensors[1:]])
    return Value(result, grown.home, Joined(parts, dim))


def _joined(metas: Sequence[Meta], dim: int) -> Meta | None:
    """The meta of joined tensors; None where torch.cat promotes, skips or refuses one."""
    first = metas[0]
    for each in metas:
        same = each.dtype is first.dtype and each.strides is None
        if not (same and each.shape and _without(each, dim) == _without(first, dim)):
            return None
    size = list(first.shape)
    size[dim] = sum(each.shape[dim] for each in metas)
    return meta(torch.Size(size), first.dtype)


def _without(of: Meta, dim: int) -> tuple[int, ...]:
    return (len(of.shape), *of.shape[:dim], *of.shape[dim + 1 :])


def _few(parts: tuple[Value, ...], dim: int) -> tuple[Value, ...]:
    """The parts of a result, those that are computed as one where they are many."""
    done = list(itertools.takewhile(lambda part: part.array is not None, parts))
    if len(done) < _PARTS:
        return parts
    home = trace_of(parts[0])
    host = torch.cat([sync.pjrt.download(part.array) for part in done], dim)
    array = sync.pjrt.upload(host, sync.device_of(home))
    whole = Value(meta(host.shape, parts[0].meta.dtype), home, array=array)
    return (whole, *parts[len(done) :])
