"""Elements put at indices. What is padding goes to a row of its own, which is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused, is_symbolic

from .indexing import from_front
from .pointwise import agreed
from .views import flat, reshape

aten = torch.ops.aten


@pads(aten.scatter.src, aten.scatter_add.default, aten.scatter.value)
def scatter(p: Padder, x: Padded, dim: int, index: Padded, src: Any) -> Padded:
    """What is padding goes to a row of its own, which is cut off."""
    return _scattered(p, x, dim, index, src, ())


@pads(aten.scatter_reduce.two, aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_reduce(p: Padder, x: Padded, dim: int, index: Padded, src: Any, *how: Any) -> Padded:
    """The same."""
    return _scattered(p, x, dim, index, src, how)


def _scattered(
    p: Padder, x: Padded, dim: int, index: Padded, src: Any, how: Sequence[Any]
) -> Padded:
    if is_symbolic(src) or not x.dims:
        raise Refused("it takes a size as a number")
    d = dim % len(x.dims)
    x, index = p.plainly(x), p.plainly(index)
    src = p.plainly(src) if isinstance(src, Padded) else src
    for e in range(len(x.dims)):
        if e != d and index.value.shape[e] > x.value.shape[e]:
            raise Refused("an index is larger than what it is for", [index.dims[e].size])
        if isinstance(src, Padded) and index.value.shape[e] > src.value.shape[e]:
            raise Refused("an index is larger than its source", [index.dims[e].size])
    rows = range(len(index.dims))
    if not index.padded_in(rows):
        return p.give(p.again(x, dim, index, src, *how), x.dims)
    return _with_row(
        p, x, d, lambda wide, row: p.again(wide, dim, p.masked(index, rows, row), src, *how)
    )


def _with_row(p: Padder, x: Padded, d: int, put: Any) -> Padded:
    """`put` on `x` with one more row along `d`, which is cut off."""
    rank, length = len(x.dims), x.value.shape[d]
    widths = [0] * (2 * rank)
    widths[2 * (rank - 1 - d) + 1] = 1
    wide = p.emit(aten.constant_pad_nd.default, x, widths, 0)
    made = put(wide, length)
    return p.give(p.emit(aten.slice.Tensor, made, d, 0, length), x.dims)


def _rows(p: Padder, x: Padded, d: int, index: Padded, source: Padded) -> tuple[Padded, ...]:
    """The three with one layout for what they share."""
    x, index = p.plainly(x), p.plainly(index)
    for e in range(len(source.dims)):
        source = p.moved(source, e, index.dims[0] if e == d else x.dims[e])
    return x, index, source


@pads(aten.index_add.default)
def index_add(
    p: Padder, x: Padded, dim: int, index: Padded, source: Padded, alpha: Any = 1
) -> Padded:
    """Rows that are added."""
    if is_symbolic(alpha) or not x.dims or not index.dims:
        raise Refused("it takes a size as a number")
    d = dim % len(x.dims)
    x, index, source = _rows(p, x, d, index, source)
    if not index.padded_in([0]):
        return p.give(p.again(x, dim, index, source, alpha), x.dims)
    return _with_row(
        p,
        x,
        d,
        lambda wide, row: p.again(wide, dim, p.masked(index, [0], row), source, alpha),
    )


@pads(aten.index_reduce.default)
def index_reduce(
    p: Padder, x: Padded, dim: int, index: Padded, source: Padded, how: str, with_self: bool = True
) -> Padded:
    """Rows that are reduced."""
    if not x.dims or not index.dims:
        raise Refused("it is for tensors with dimensions")
    d = dim % len(x.dims)
    x, index, source = _rows(p, x, d, index, source)

    def put(wide: Any, row: int) -> Any:
        return p.again(wide, dim, p.masked(index, [0], row), source, how, with_self)

    if not index.padded_in([0]):
        return p.give(p.again(x, dim, index, source, how, with_self), x.dims)
    return _with_row(p, x, d, put)


@pads(aten.index_copy.default)
def index_copy(p: Padder, x: Padded, dim: int, index: Padded, source: Padded) -> Padded:
    """Rows that are replaced."""
    if not x.dims or not index.dims:
        raise Refused("it is for tensors with dimensions")
    d = dim % len(x.dims)
    x, index, source = _rows(p, x, d, index, source)
    if not index.padded_in([0]):
        return p.give(p.again(x, dim, index, source), x.dims)
    return _with_row(
        p, x, d, lambda wide, row: p.again(wide, dim, p.masked(index, [0], row), source)
    )


@pads(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(p: Padder, x: Padded, dim: int, index: Padded, value: Any) -> Padded:
    """Rows that are filled."""
    if is_symbolic(value) or not x.dims or not index.dims:
        raise Refused("it takes a size as a number")
    d = dim % len(x.dims)
    x = p.plainly(x, [d])
    if not index.padded_in([0]):
        return p.give(p.again(x, dim, index, value), x.dims)
    return _with_row(
        p, x, d, lambda wide, row: p.again(wide, dim, p.masked(p.plainly(index), [0], row), value)
    )


@pads(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    p: Padder, x: Padded, indices: Sequence[Padded | None], values: Padded, accumulate: bool = False
) -> Padded:
    """x[:, i, j] = values."""
    at = [d for d, each in enumerate(indices) if each is not None]
    if at != list(range(at[0], at[-1] + 1)):
        raise Refused("its indices are apart")
    x = p.plainly(x)
    fronts = [from_front(p, indices[d], x.dims[d]) for d in at]  # type: ignore[arg-type]
    rank = max(len(each.dims) for each in fronts)
    sizes = _broadcast([each.dims for each in fronts], rank)
    dims, made = agreed(p, fronts, sizes)
    wanted = [*x.dims[: at[0]], *dims, *x.dims[at[-1] + 1 :]]
    values = p.laid_out(values, wanted)
    if not any(dim.is_padded for dim in dims):
        return p.give(p.again(x, _listed(at, made), values, accumulate), x.dims)
    first = made[0]
    shape = [p.padded(dim.size) for dim in dims]
    first = p.give(p.emit(aten.expand.default, first, shape), dims)

    def put(wide: Any, row: int) -> Any:
        given = [p.masked(first, range(len(first.dims)), row), *made[1:]]
        return p.again(wide, _listed(at, given), values, accumulate)

    return _with_row(p, x, at[0], put)


def _listed(at: Sequence[int], given: Sequence[Any]) -> list[Any]:
    listed: list[Any] = [None] * (at[-1] + 1)
    for d, each in zip(at, given, strict=True):
        listed[d] = each
    return listed


def _broadcast(all_dims: Sequence[Any], rank: int) -> list[Any]:
    """The shape that indices broadcast to."""
    sizes: list[Any] = [1] * rank
    for dims in all_dims:
        for e in range(-len(dims), 0):
            if dims[e].size != 1:
                sizes[e] = dims[e].size
    return sizes


@pads(aten.put.default)
def put(p: Padder, x: Padded, index: Padded, source: Padded, accumulate: bool = False) -> Padded:
    """Elements of one row."""
    sizes, x = x.sizes, flat(p, x)
    index, source = flat(p, index), flat(p, source)
    at = from_front(p, index, x.dims[0])
    source = p.laid_out(source, at.dims)

    def placed(wide: Any, row: int) -> Any:
        masked = p.masked(at, [0], row)
        return p.emit(aten.index_put.default, wide, [masked], source, accumulate)

    return reshape(p, _with_row(p, x, 0, placed), sizes)
