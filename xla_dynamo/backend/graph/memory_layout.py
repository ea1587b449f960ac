"""Shapes, strides and offsets -> where elements are in memory, and whether tensors share any."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

# Of larger memory, elements are not told one by one.
_FEW = 2**24


def is_dense(value: torch.Tensor) -> bool:
    """Whether the elements of `value` fill their memory, in any order."""
    return value.is_contiguous() or physical_order(value) is not None


def physical_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions from outermost to innermost in memory, if eager's result is a dense tensor
    in another order than row-major."""
    if value.is_contiguous() or value.numel() == 0:
        return None
    order = sorted(range(value.dim()), key=lambda d: (-value.stride(d), value.shape[d] == 1, d))
    expected = 1
    for dimension in reversed(order):
        if value.shape[dimension] != 1 and value.stride(dimension) != expected:
            return None
        expected *= value.shape[dimension]
    return None if order == sorted(order) else tuple(order)


def overlap(values: Sequence[torch.Tensor]) -> bool:
    """Whether two of these views of one tensor have an element in common; they may be fake.

    In large memory, whether what is between their first and last elements has.
    """
    values = [value for value in values if value.numel()]
    ends = sorted(map(_extent, values))
    if all(last < first for (_, last), (first, _) in itertools.pairwise(ends)):
        return False
    size = values[0].untyped_storage().nbytes()
    unit = min(value.itemsize for value in values)
    if size // unit > _FEW:
        return True
    taken = torch.zeros(size // unit, dtype=torch.bool, device="cpu")
    for value in values:
        units = value.itemsize // unit
        strides = [step * units for step in value.stride()]
        part = taken.as_strided(
            (*value.shape, units), (*strides, 1), value.storage_offset() * units
        )
        if part.any():
            return True
        part.fill_(True)
    return False


def _extent(value: torch.Tensor) -> tuple[int, int]:
    """The first and the last byte of a view that has elements."""
    first = int(value.storage_offset())
    last = first + sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
    return first * value.itemsize, (last + 1) * value.itemsize - 1
