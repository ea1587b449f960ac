"""The parts of ops whose shape depends on data: what there can be of a result, and its number.

`whole` results begin with what there is, and have the largest shape that there could be. Importing
this module registers the ops; counted.py makes others of them, lowering/rules/counted.py lowers
them, and what is here runs where they fall back to eager.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def _op(name: str, schema: str) -> Callable[..., Any]:
    return torch.library.custom_op(f"xla_dynamo::{name}", mutates_args=(), schema=schema)


def _padded(x: Tensor, size: int, dim: int = 0) -> Tensor:
    """`x` with zeros behind it along `dim`, up to `size`."""
    padding = [0, 0] * (x.dim() - dim - 1) + [0, size - x.shape[dim]]
    return F.pad(x, padding).contiguous()


def _number(n: int) -> Tensor:
    return torch.tensor(n, dtype=torch.int64)


@_op("nonzero_padded", "(Tensor x) -> (Tensor, Tensor)")
def nonzero_padded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates of the nonzeros as columns, [x.dim(), x.numel()], and their number."""
    found = x.nonzero()
    return _padded(found.t().contiguous(), x.numel(), 1), _number(len(found))


@nonzero_padded.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty((x.dim(), x.numel()), dtype=torch.int64), _count_of(x)


def _count_of(x: Tensor) -> Tensor:
    return x.new_empty((), dtype=torch.int64)


@_op("masked_select_padded", "(Tensor x, Tensor mask) -> (Tensor, Tensor)")
def masked_select_padded(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The elements at which `mask` is true, 1-d, after broadcasting, and their number."""
    found = torch.masked_select(x, mask)
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    return _padded(found, math.prod(shape)), _number(len(found))


@masked_select_padded.register_fake
def _(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    return x.new_empty((math.prod(shape),)), _count_of(x)


@_op("index_padded", "(Tensor x, Tensor mask, int dim) -> (Tensor, Tensor)")
def index_padded(x: Tensor, mask: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """x[:, mask], where `mask` is over the dimensions from `dim` on, and how many it picks."""
    found = x[(*[slice(None)] * dim, mask)]
    return _padded(found, mask.numel(), dim), _number(found.shape[dim])


@index_padded.register_fake
def _(x: Tensor, mask: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    shape = [*x.shape[:dim], mask.numel(), *x.shape[dim + mask.dim() :]]
    return x.new_empty(shape), _count_of(x)


_GROUPS = "-> (Tensor values, Tensor inverse, Tensor counts, Tensor number)"


@_op("unique_padded", f"(Tensor x, int? dim, bool consecutive) {_GROUPS}")
def unique_padded(x: Tensor, dim: int | None, consecutive: bool) -> tuple[Tensor, ...]:
    """Distinct elements (or slices along `dim`), the group of each, the groups' sizes and number.

    consecutive: only neighbours are compared; otherwise the groups are in ascending order.
    """
    find = torch.unique_consecutive if consecutive else torch.unique
    values, inverse, counts = find(x, return_inverse=True, return_counts=True, dim=dim)
    size = x.numel() if dim is None else x.shape[dim]
    return _padded(values, size, dim or 0), inverse, _padded(counts, size), _number(len(counts))


@unique_padded.register_fake
def _(x: Tensor, dim: int | None, consecutive: bool) -> tuple[Tensor, ...]:
    size = x.numel() if dim is None else x.shape[dim]
    counts = x.new_empty((size,), dtype=torch.int64)
    if dim is None:
        return x.new_empty((size,)), torch.empty_like(x, dtype=torch.int64), counts, _count_of(x)
    return x.new_empty(x.shape), torch.empty_like(counts), counts, _count_of(x)


@_op("bincount_size", "(Tensor x, int minlength) -> Tensor")
def bincount_size(x: Tensor, minlength: int) -> Tensor:
    """How many bins torch.bincount needs; -1 if `x` has a negative element."""
    if x.numel() == 0:
        return _number(minlength)
    return _number(-1 if x.min() < 0 else max(minlength, int(x.max()) + 1))


@_op("repeats_size", "(Tensor repeats) -> Tensor")
def repeats_size(repeats: Tensor) -> Tensor:
    """The sum of `repeats`; -1 if one is negative."""
    return _number(-1 if bool((repeats < 0).any()) else int(repeats.sum()))


@bincount_size.register_fake
def _(x: Tensor, minlength: int) -> Tensor:
    return _count_of(x)


@repeats_size.register_fake
def _(repeats: Tensor) -> Tensor:
    return _count_of(repeats)


@_op("sized_bincount", "(Tensor x, Tensor? weights, SymInt size) -> Tensor")
def sized_bincount(x: Tensor, weights: Tensor | None, size: int) -> Tensor:
    """torch.bincount with `size` bins."""
    return torch.bincount(x, weights, size)


@sized_bincount.register_fake
def _(x: Tensor, weights: Tensor | None, size: int) -> Tensor:
    single = weights is not None and weights.dtype == torch.float32
    dtype = torch.int64 if weights is None else torch.float32 if single else torch.float64
    return x.new_empty((size,), dtype=dtype)
