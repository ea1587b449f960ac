"""Where the elements of strided tensors are in memory, and whether tensors have some in common."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence

import torch

# In larger memory, elements are not compared one by one.
_FEW = 2**24


def is_dense(value: torch.Tensor) -> bool:
    """Whether the elements of `value` fill their memory, in any order."""
    return value.is_contiguous() or fills_memory(value.shape, value.stride())


def fills_memory(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether elements with these strides leave no gaps, in any order of the dimensions."""
    expected = 1
    for step, n in sorted((step, n) for n, step in zip(size, stride, strict=True) if n > 1):
        if step != expected:
            return False
        expected *= n
    return True


def row_major(size: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor."""
    return tuple(itertools.accumulate(size[:0:-1], operator.mul, initial=1))[::-1] if size else ()


def physical_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions of a dense tensor from outermost to innermost, if that is not row-major."""
    if value.is_contiguous() or not is_dense(value):
        return None
    order = sorted(range(value.dim()), key=lambda d: (-value.stride(d), value.shape[d] == 1, d))
    return None if order == sorted(order) else tuple(order)


def has_channels_last(value: object) -> bool:
    """Whether a value is a tensor of images whose channels are innermost, and not row-major too."""
    if not isinstance(value, torch.Tensor) or value.dim() != 4 or value.is_contiguous():
        return False
    return value.is_contiguous(memory_format=torch.channels_last)


def repeats_elements(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether a dimension has stride 0: several elements are at one position in memory."""
    return any(n > 1 and step == 0 for n, step in zip(size, stride, strict=True))


def extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """How many positions there are from the first element to the last, both included."""
    return 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))


def overlap(values: Sequence[torch.Tensor]) -> bool:
    """Whether two of these views of one tensor have an element in common; they may be fake.

    In large memory: whether the ranges between their first and last elements overlap.
    """
    values = [value for value in values if value.numel()]
    ends = sorted(map(_ends, values))
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
        own = taken.as_strided((*value.shape, units), (*strides, 1), value.storage_offset() * units)
        if own.any():
            return True
        own.fill_(True)
    return False


def _ends(value: torch.Tensor) -> tuple[int, int]:
    """The first and the last byte of a view that has elements."""
    first = int(value.storage_offset())
    end = first + extent(value.shape, value.stride())
    return first * value.itemsize, end * value.itemsize - 1
