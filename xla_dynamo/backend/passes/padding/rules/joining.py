"""Tensors one behind the other, and constants around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.layouts import constant, plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused, Size, is_symbolic

aten = torch.ops.aten


@pads(aten.cat.default)
def cat(p: Padder, tensors: Sequence[Padded], dim: int = 0) -> Padded:
    """Each begins where the elements of the one before it end."""
    out = p.out()
    tensors = [x for x in tensors if len(x.dims) == len(out)]
    d = dim % len(out)
    tensors = [p.plainly(x, [d]) for x in tensors]
    others = [e for e in range(len(out)) if e != d]
    dims = [_common([x.dims[e] for x in tensors]) for e in range(len(out))]
    tensors = [_moved(p, x, others, dims) for x in tensors]
    dims[d] = plain(out[d])
    joined = p.emit(aten.cat.default, list(tensors), d)
    if not any(x.padded_in([d]) for x in tensors[:-1]):
        return _trimmed(p, joined, d, dims)
    length = p.padded(out[d])
    at = p.positions(length, tensors[0].value.device)
    source, end = at, 0
    for x in tensors[:-1]:
        end = end + x.dims[d].size
        gap = x.value.shape[d] - x.dims[d].size
        if gap == 0:
            continue
        op = aten.ge.Tensor if is_symbolic(end) else aten.ge.Scalar
        beyond = p.emit(aten._to_copy.default, p.emit(op, at, p.runtime(end)), dtype=torch.int64)
        shift = p.emit(aten.mul.Tensor, beyond, p.runtime(gap))
        source = p.emit(aten.add.Tensor, source, shift)
    last = joined.meta["val"].shape[d] - 1
    source = p.emit(aten.clamp.default, source, 0, last)
    return p.give(p.emit(aten.index_select.default, joined, d, source), dims)


def _common(found: Sequence[Any]) -> Any:
    """One layout for all."""
    layouts = {dim for dim in found if dim.factors is not None}
    if len(layouts) > 1:
        return plain(found[0].size)
    return next(iter(layouts), constant(found[0].size))


def _moved(p: Padder, x: Padded, at: Sequence[int], dims: Sequence[Any]) -> Padded:
    """`x` with the layouts of `dims` in the dimensions `at`."""
    for e in at:
        x = p.moved(x, e, dims[e])
    return x


def _trimmed(p: Padder, joined: Any, d: int, dims: Sequence[Any]) -> Padded:
    """A bucket of the sum may be smaller than the sum of buckets."""
    wanted, there = p.padded(dims[d].size), joined.meta["val"].shape[d]
    if wanted < there:
        joined = p.emit(aten.slice.Tensor, joined, d, 0, wanted)
    return p.give(joined, dims)


@pads(aten.stack.default)
def stack(p: Padder, tensors: Sequence[Padded], dim: int = 0) -> Padded:
    """A new dimension."""
    all_ = range(len(tensors[0].dims))
    dims = [_common([x.dims[e] for x in tensors]) for e in all_]
    tensors = [_moved(p, x, all_, dims) for x in tensors]
    dims.insert(dim % (len(dims) + 1), plain(len(tensors)))
    return p.give(p.emit(aten.stack.default, list(tensors), dim), dims)


@pads(aten.constant_pad_nd.default)
def constant_pad(p: Padder, x: Padded, amounts: Sequence[Any], value: Any = 0) -> Padded:
    """What is padding becomes that constant; a size may say how much of it there is."""
    if is_symbolic(value):
        raise Refused("it takes a size as a number")
    rank, out = len(x.dims), p.out()
    for i in range(len(amounts) // 2):
        d = rank - 1 - i
        before, after = amounts[2 * i], amounts[2 * i + 1]
        if before == 0 and after == 0:
            continue
        x = p.masked(p.plainly(x, [d]), [d], value)
        x = _surrounded(p, x, d, before, out[d], value)
    return x


def _surrounded(p: Padder, x: Padded, d: int, before: Any, size: Size, value: Any) -> Padded:
    """`x` along `d` from `before` on, in `size` positions, `value` elsewhere."""
    dims = list(x.dims)
    dims[d] = plain(size)
    rank, there = len(dims), x.value.shape[d]
    if not isinstance(before, int):
        raise Refused("a size says how many elements are put before", [before])
    behind = p.padded(size) - there - before
    widths = [0] * (2 * rank)
    widths[2 * (rank - 1 - d)], widths[2 * (rank - 1 - d) + 1] = before, behind
    return p.give(p.emit(aten.constant_pad_nd.default, x, widths, value), dims)
