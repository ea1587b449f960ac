"""Elements by index. An index counts among the elements: from their end where it is negative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.layouts import Dim
from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused

from .pointwise import agreed
from .views import flat

aten = torch.ops.aten


def from_front(p: Padder, index: Padded, dim: Dim) -> Padded:
    """Non-negative indices; those in the padding are somewhere inside."""
    if index.value.dtype in (torch.bool, torch.uint8):
        raise Refused("a mask is an index")
    x = p.masked(index, range(len(index.dims)), 0)
    if dim.is_padded:
        shifted = p.emit(aten.add.Tensor, x, p.runtime(dim.size))
        is_negative = p.emit(aten.lt.Scalar, x, 0)
        x = p.give(p.emit(aten.where.self, is_negative, shifted, x), x.dims)
    return x


@pads(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(p: Padder, x: Padded, indices: Sequence[Padded | None]) -> Padded:
    """x[:, i, j], where the indices broadcast."""
    at = [d for d, each in enumerate(indices) if each is not None]
    x = p.plainly(x, at)
    out = p.out()
    rank = max(len(each.dims) for each in indices if each is not None)
    together = at == list(range(at[0], at[-1] + 1))
    start = at[0] if together else 0
    fronts = [from_front(p, indices[d], x.dims[d]) for d in at]  # type: ignore[arg-type]
    dims, made = agreed(p, fronts, out[start : start + rank])
    given: list[Any] = [None] * (at[-1] + 1)
    for d, each in zip(at, made, strict=True):
        given[d] = each
    others = [dim for d, dim in enumerate(x.dims) if d not in at]
    return p.give(p.again(x, given), [*others[:start], *dims, *others[start:]])


@pads(aten.index_select.default)
def index_select(p: Padder, x: Padded, dim: int, index: Padded) -> Padded:
    """x[:, i] of a 1-d index."""
    if not x.dims:
        return p.give(p.again(x, dim, index), [])
    d = dim % len(x.dims)
    x, index = p.plainly(x, [d]), p.masked(index, range(len(index.dims)), 0)
    dims = list(x.dims)
    dims[d] = index.dims[0] if index.dims else dims[d]
    return p.give(p.again(x, dim, index), dims)


@pads(aten.gather.default)
def gather(p: Padder, x: Padded, dim: int, index: Padded, *rest: Any) -> Padded:
    """The index may be smaller than `x` in other dimensions: positions there are the same."""
    d = dim % max(len(x.dims), 1)
    x = p.plainly(x)
    index = p.plainly(index)
    for e in range(len(x.dims)):
        if e != d and index.value.shape[e] > x.value.shape[e]:
            raise Refused("an index is larger than what it indexes", [index.dims[e].size])
    index = p.masked(index, range(len(index.dims)), 0)
    return p.give(p.again(x, dim, index, *rest), index.dims)


@pads(aten.take.default)
def take(p: Padder, x: Padded, index: Padded) -> Padded:
    """Of all elements as one row."""
    x = flat(p, x)
    index = from_front(p, index, x.dims[0])
    return p.give(p.again(x, index), index.dims)
