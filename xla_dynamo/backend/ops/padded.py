"""Building blocks for ops with data-dependent shapes.

Each returns its result padded to the largest possible size, and a 0-d count of the valid leading
elements, or only the size that a result will have. decompositions/dynamic_shapes.py makes the ATen
ops of them, lowering/rules/dynamic_shapes.py lowers them.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .registration import op


def _padded(x: Tensor, size: int, dim: int = 0) -> Tensor:
    """`x` with zeros behind it along `dim`, up to `size`."""
    padding = [0, 0] * (x.dim() - dim - 1) + [0, size - x.shape[dim]]
    return F.pad(x, padding).contiguous()


def _count(n: int) -> Tensor:
    return torch.tensor(n, dtype=torch.int64, device="cpu")


def _fake_count(x: Tensor, *_: object) -> Tensor:
    return x.new_empty((), dtype=torch.int64)


def _fake_nonzero(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty((x.dim(), x.numel()), dtype=torch.int64), _fake_count(x)


@op("(Tensor x) -> (Tensor, Tensor)", fake=_fake_nonzero)
def nonzero_padded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Indices of the nonzeros as columns, [x.dim(), x.numel()], and their count."""
    found = x.nonzero()
    return _padded(found.t().contiguous(), x.numel(), 1), _count(len(found))


def _fake_masked_select(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    return x.new_empty((math.prod(shape),)), _fake_count(x)


@op("(Tensor x, Tensor mask) -> (Tensor, Tensor)", fake=_fake_masked_select)
def masked_select_padded(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The elements at which `mask` is true, 1-d, after broadcasting, and their count."""
    found = torch.masked_select(x, mask)
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    return _padded(found, math.prod(shape)), _count(len(found))


def _fake_index(x: Tensor, mask: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    shape = [*x.shape[:dim], mask.numel(), *x.shape[dim + mask.dim() :]]
    return x.new_empty(shape), _fake_count(x)


@op("(Tensor x, Tensor mask, int dim) -> (Tensor, Tensor)", fake=_fake_index)
def index_padded(x: Tensor, mask: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """x[:, mask], where `mask` is over the dimensions from `dim` on, and how many it selects."""
    found = x[(*[slice(None)] * dim, mask)]
    return _padded(found, mask.numel(), dim), _count(found.shape[dim])


def _fake_unique(x: Tensor, dim: int | None, consecutive: bool) -> tuple[Tensor, ...]:
    size = x.numel() if dim is None else x.shape[dim]
    counts = x.new_empty((size,), dtype=torch.int64)
    if dim is None:
        groups = x.new_empty(x.shape, dtype=torch.int64)
        return x.new_empty((size,)), groups, counts, _fake_count(x)
    return x.new_empty(x.shape), torch.empty_like(counts), counts, _fake_count(x)


@op(
    "(Tensor x, int? dim, bool consecutive)"
    " -> (Tensor values, Tensor inverse, Tensor counts, Tensor number)",
    fake=_fake_unique,
)
def unique_padded(x: Tensor, dim: int | None, consecutive: bool) -> tuple[Tensor, ...]:
    """Distinct elements (or slices along `dim`), the group of each, the groups' sizes and count.

    consecutive: only neighbours are compared; otherwise the groups are in ascending order.
    """
    find = torch.unique_consecutive if consecutive else torch.unique
    values, inverse, counts = find(x, return_inverse=True, return_counts=True, dim=dim)
    size = x.numel() if dim is None else x.shape[dim]
    return _padded(values, size, dim or 0), inverse, _padded(counts, size), _count(len(counts))


@op("(Tensor x, int minlength) -> Tensor", fake=_fake_count)
def bincount_size(x: Tensor, minlength: int) -> Tensor:
    """How many bins torch.bincount needs; -1 if `x` has a negative element."""
    if x.numel() == 0:
        return _count(minlength)
    return _count(-1 if x.min() < 0 else max(minlength, int(x.max()) + 1))


@op("(Tensor repeats) -> Tensor", fake=_fake_count)
def repeats_size(repeats: Tensor) -> Tensor:
    """The sum of `repeats`; -1 if one is negative."""
    return _count(-1 if bool((repeats < 0).any()) else int(repeats.sum()))


def _fake_bincount(x: Tensor, weights: Tensor | None, size: int) -> Tensor:
    is_single = weights is not None and weights.dtype == torch.float32
    dtype = torch.int64 if weights is None else torch.float32 if is_single else torch.float64
    return x.new_empty((size,), dtype=dtype)


@op("(Tensor x, Tensor? weights, SymInt size) -> Tensor", fake=_fake_bincount)
def sized_bincount(x: Tensor, weights: Tensor | None, size: int) -> Tensor:
    """torch.bincount with `size` bins."""
    return torch.bincount(x, weights, size)


def _fake_nms(boxes: Tensor, scores: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    return boxes.new_empty(boxes.shape[:1], dtype=torch.int64), _fake_count(boxes)


@op("(Tensor boxes, Tensor scores, float threshold) -> (Tensor, Tensor)", fake=_fake_nms)
def nms_padded(boxes: Tensor, scores: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Positions of the boxes that torchvision's nms keeps, best first, and their count."""
    kept = torch.ops.torchvision.nms(boxes, scores, threshold)
    return _padded(kept, len(boxes)), _count(len(kept))
