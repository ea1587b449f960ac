"""torch.cat and torch.stack of what grows from step to step: the predictions of an evaluation, say.

As an op of the step, `predictions = torch.cat([predictions, output])` would have another shape, and
the step another program, each time; so would `torch.stack(losses)` of a list that grows. Where a
tensor or a list is seen to grow so, the op is not recorded: its result refers to its parts. They
are joined where it is read, by the host; or where another op uses it, by the op that is recorded
then, unless the host computes that (see on_host).
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
from xla_dynamo.compat.values.op_table import Op, handles, op_of
from xla_dynamo.compat.values.values import Held, Joined, Leaf, Meta, PutOff, Value, leaf, meta

from . import sync
from .dispatch import record

# Parts of a tensor that grows; beyond, those that are computed become one.
_PARTS = 256
# The least size that a join gave, by the metas of all parts but the first: it grows if it has that.
_least: Bounded[tuple[int, tuple[Meta, ...]], int] = Bounded(1024)
# How long a list was that an op joined last, and the identity of its last value, by that of its
# first: a longer list that has both where they were grew. A mistake costs nothing: see `_put_off`.
_lists: Bounded[tuple[Op, int], tuple[int, int]] = Bounded(1024)


@handles(torch.ops.aten.cat.default, torch.ops.aten.stack.default)
def _join(op: Op, args: Any, kwargs: Any) -> Any:
    tensors = args[0]
    if tensors and type(tensors[0]) is Leaf and not kwargs and not policy.each_op:
        value = tensors[0].value
        grew = _grew(op, tensors)
        # It is of an earlier step, or the loop has no barriers.
        put_off = isinstance(value.ref, PutOff | Held)
        if value.array is not None or put_off or trace_of(value).follows:
            made = _put_off(op, tensors, grew, *args[1:])
            if made is not None:
                return leaf(made)
    return record(op, args, kwargs)


_CAT, _STACK = op_of(torch.ops.aten.cat.default), op_of(torch.ops.aten.stack.default)


def _grew(op: Op, tensors: Sequence[Any]) -> bool:
    """Whether a list begins with all of one that `op` joined before."""
    first, last = (op, id(tensors[0].value)), tensors[-1]
    size, end = _lists.get(first, (len(tensors), 0))
    _lists[first] = len(tensors), id(last.value) if type(last) is Leaf else 0
    before = tensors[size - 1] if size < len(tensors) else None
    return type(before) is Leaf and id(before.value) == end


def _put_off(op: Op, tensors: Sequence[Any], list_grew: bool, dim: int = 0) -> Value | None:
    """The result of joining `tensors`, if it keeps growing.

    It may be put off in any case: its uses and reads give what the op would have given.
    """
    grown, stacked = tensors[0].value, op is _STACK
    if any(type(tensor) is not Leaf or tensor.value.home is not grown.home for tensor in tensors):
        return None
    metas = tuple([tensor.value.meta for tensor in tensors])
    dim = dim % max(len(grown.meta.shape) + stacked, 1)
    result = (_stacked if stacked else _joined)(metas, dim)
    if result is None:
        return None
    parts = tuple([tensor.value for tensor in tensors])
    if not list_grew:
        if stacked or not _first_grows(metas, dim, result):
            return None
        known = grown.ref
        if type(known) is Joined and known.op is op and known.rest == (dim,):
            parts = (*known.parts, *parts[1:])
        parts = _few(parts, dim)
    metrics.count("xla::stack" if stacked else "xla::cat")
    metrics.count("CreateXlaTensor")
    return Value(result, grown.home, Joined(op, parts, (dim,), list_grew))


def _first_grows(metas: tuple[Meta, ...], dim: int, result: Meta) -> bool:
    """Whether the first of what is joined is what a join of others like the rest gave before."""
    size = result.shape[dim]
    least = _least.get((dim, metas[1:]), size + 1)
    if size < least:
        _least[dim, metas[1:]] = size
    return metas[0].shape[dim] >= least


def _joined(metas: Sequence[Meta], dim: int) -> Meta | None:
    """The meta of joined tensors; None where torch.cat promotes, skips or refuses one."""
    first = metas[0]
    for each in metas:
        same = each.dtype is first.dtype and _is_plain(each)
        if not (same and each.shape and _without(each, dim) == _without(first, dim)):
            return None
    size = list(first.shape)
    size[dim] = sum(each.shape[dim] for each in metas)
    return meta(torch.Size(size), first.dtype)


def _stacked(metas: Sequence[Meta], dim: int) -> Meta | None:
    """The meta of stacked tensors; None where torch.stack promotes or refuses one."""
    first = metas[0]
    for each in metas:
        if each.dtype is not first.dtype or each.shape != first.shape or not _is_plain(each):
            return None
    size = [*first.shape]
    size.insert(dim, len(metas))
    return meta(torch.Size(size), first.dtype)


def _is_plain(of: Meta) -> bool:
    """Whether joining it with others like it gives row-major strides: it is no image."""
    return of.strides is None or len(of.shape) < 3


def _without(of: Meta, dim: int) -> tuple[int, ...]:
    return (len(of.shape), *of.shape[:dim], *of.shape[dim + 1 :])


def _few(parts: tuple[Value, ...], dim: int) -> tuple[Value, ...]:
    """The parts of a result, those that are computed as one where they are many."""
    done = tuple(itertools.takewhile(lambda part: part.array is not None, parts))
    if len(done) < _PARTS:
        return parts
    of = _joined([part.meta for part in done], dim)
    assert of is not None
    whole = Value(of, done[0].home, Joined(_CAT, done, (dim,)))
    made = sync.upload(trace_of(whole), sync.download(whole))
    return (made, *parts[len(done) :])
