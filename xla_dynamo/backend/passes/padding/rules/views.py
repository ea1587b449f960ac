"""Reshapes, permutations and broadcasts. Elements move only where a layout cannot follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.layouts import (
    Dim,
    constant,
    factors_of,
    plain,
    reshaped,
    with_factors,
)
from xla_dynamo.backend.passes.padding.padder import Padded, Padder, dims_of
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused, Size, is_symbolic, product, same

aten = torch.ops.aten


@pads(
    *(aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.view_copy.default),
    *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default),
    *(aten.flatten.using_ints, aten._reshape_alias.default, aten.unsqueeze_copy.default),
    *(aten.squeeze_copy.dim, aten.squeeze_copy.dims, aten._reshape_copy.default),
)
def to_result(p: Padder, x: Padded, *_: Any) -> Padded:
    """All ops that give the same elements in another shape."""
    return reshape(p, x, p.out())


def reshape(p: Padder, x: Padded, sizes: Sequence[Size]) -> Padded:
    """`x` in another shape."""
    dims = _unmoved(x.dims, sizes)
    if dims is None:
        return _moving(p, x, sizes)
    shape = [p.padded(size) for size in sizes]
    return p.give(p.emit(aten.view.default, x, shape), dims)


def _unmoved(dims: Sequence[Dim], sizes: Sequence[Size]) -> list[Dim] | None:
    """The new dimensions, if no element moves."""
    kept = [dim for dim in dims if dim.size != 1]
    wanted = [size for size in sizes if size != 1]
    if len(kept) == len(wanted) and all(
        same(dim.size, n) for dim, n in zip(kept, wanted, strict=True)
    ):
        left = iter(kept)
        return [plain(1) if size == 1 else next(left) for size in sizes]
    try:
        return reshaped(dims, sizes)
    except (TypeError, ValueError, ZeroDivisionError, NotImplementedError):
        return None


def _moving(p: Padder, x: Padded, sizes: Sequence[Size]) -> Padded:
    """By positions of what the dimensions that change are as one."""
    old, new = list(x.dims), list(sizes)
    front, back = 0, 0
    while front < min(len(old), len(new)) and same(old[front].size, new[front]):
        front += 1
    while back < min(len(old), len(new)) - front and same(old[-1 - back].size, new[-1 - back]):
        back += 1
    middle, wanted = old[front : len(old) - back], new[front : len(new) - back]
    if 0 in wanted or not wanted or not middle:
        raise Refused("it is reshaped to or from no elements")
    lead, trail = old[:front], old[len(old) - back :]
    merged = _of_factors([f for dim in middle for f in factors_of(dim)])
    x = _viewed(p, x, [*lead, merged, *trail])
    x = p.moved(x, front, _of_factors(wanted))
    dims = [*lead, *dims_of(wanted), *trail]
    return p.give(p.emit(aten.view.default, x, [p.padded(dim.size) for dim in dims]), dims)


def _of_factors(factors: Sequence[Size]) -> Dim:
    # Sizes that are equal need not be padded to the same: s, and 2 * (s // 2).
    return with_factors(product(factors), factors)


def _viewed(p: Padder, x: Padded, dims: Sequence[Dim]) -> Padded:
    return p.give(p.emit(aten.view.default, x, [p.padded(dim.size) for dim in dims]), dims)


def flat(p: Padder, x: Padded) -> Padded:
    """`x` in one dimension, its padding behind its elements."""
    return p.plainly(reshape(p, x, [product(x.sizes)]))


@pads(aten.expand.default, aten.expand_copy.default)
def expand(p: Padder, x: Padded, *_: Any) -> Padded:
    """Along what it repeats, all elements are the same."""
    out = p.out()
    shape = [p.padded(size) for size in out]
    return p.give(p.emit(aten.expand.default, x, shape), broadcast_dims(x.dims, out))


def broadcast_dims(dims: Sequence[Dim], out: Sequence[Size]) -> list[Dim]:
    """The dimensions of `dims` after an expand to `out`."""
    missing = len(out) - len(dims)
    return [
        constant(size) if d < missing or (dims[d - missing].size == 1) else dims[d - missing]
        for d, size in enumerate(out)
    ]


@pads(aten.permute.default, aten.permute_copy.default)
def permute(p: Padder, x: Padded, order: Sequence[int]) -> Padded:
    """Dimensions keep their layout."""
    return p.give(p.again(x, order), [x.dims[d] for d in order])


@pads(aten.transpose.int, aten.transpose_copy.int)
def transpose(p: Padder, x: Padded, first: int, second: int) -> Padded:
    """Two dimensions change places."""
    dims = list(x.dims)
    if dims:
        dims[first], dims[second] = dims[second], dims[first]
    return p.give(p.again(x, first, second), dims)


@pads(aten.t.default, aten.numpy_T.default, aten.t_copy.default)
def t(p: Padder, x: Padded) -> Padded:
    """All dimensions, backwards."""
    return p.give(p.again(x), x.dims[::-1])


@pads(aten.view_as_real.default, aten.view_as_complex.default, aten.view_as_real_copy.default)
def other_numbers(p: Padder, x: Padded) -> Padded:
    """The last dimension, of size 2, is the parts of a complex number."""
    out = p.out()
    dims = [*x.dims, plain(2)] if len(out) > len(x.dims) else x.dims[:-1]
    return p.give(p.again(x), dims)


@pads(aten.repeat.default)
def repeat(p: Padder, x: Padded, repeats: Sequence[Any]) -> Padded:
    """By a new dimension before each, along which everything is the same."""
    lead = len(repeats) - len(x.dims)
    dims: list[Dim] = []
    for d, count in enumerate(repeats):
        dim = plain(1) if d < lead else x.dims[d - lead]
        dims += [constant(count) if is_symbolic(count) else plain(count), dim]
    inner = [dim if i % 2 else plain(1) for i, dim in enumerate(dims)]
    x = _viewed(p, x, inner)
    shape = [p.padded(dim.size) for dim in dims]
    x = p.give(p.emit(aten.expand.default, x, shape), dims)
    return reshape(p, x, p.out())


@pads(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(p: Padder, x: Padded, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Padded:
    """The diagonal of what is padded begins with that of the elements."""
    if is_symbolic(offset):
        raise Refused("a diagonal is given by a size")
    x = p.plainly(x, [dim1, dim2])
    rank = len(x.dims)
    dims = [dim for d, dim in enumerate(x.dims) if d not in (dim1 % rank, dim2 % rank)]
    size = p.out()[-1]
    made = p.again(x, offset, dim1, dim2)
    return p.give(_cut(p, made, len(dims), size), [*dims, plain(size)])


def _cut(p: Padder, made: Any, d: int, size: Size) -> Any:
    """The first positions along `d`, as many as a padded size has."""
    wanted = p.padded(size)
    if made.meta["val"].shape[d] == wanted:
        return made
    if made.meta["val"].shape[d] < wanted:
        raise Refused("it would be longer than what is padded", [size])
    return p.emit(aten.slice.Tensor, made, d, 0, wanted)
