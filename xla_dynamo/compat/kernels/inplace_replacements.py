"""In-place ops that functionalization gets wrong, or lacks, by ops that it gets right.

PyTorch's kernels of fill_diagonal_ and as_strided_ use a tensor's storage offset, which on the
device is 0 for every view; resize_ would show memory around a view, which it does not have.
polygamma_ has no kernel there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.compat.values.torch_private import is_base, is_functional

from .as_strided import spans_base
from .inplace_views import dimensions_kernel
from .redispatch import redispatch

aten = torch.ops.aten

# No other kernels are registered for these.
REPLACED = frozenset({"as_strided_", "fill_diagonal_", "polygamma_", "resize_"})


def register_inplace_replacements(library: torch.library.Library) -> None:
    """Register the kernels for dispatch key AutogradXLA."""
    rename = dimensions_kernel(aten.as_strided_.default)

    def as_strided(
        tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
    ) -> torch.Tensor:
        if is_functional(tensor) and not spans_base(tensor):
            raise RuntimeError(
                "as_strided_: where a part of a tensor on an xla device begins in memory is "
                "unknown; use as_strided, which makes a new view of it"
            )
        return rename(tensor, size, stride, offset)

    def resize(
        tensor: torch.Tensor, size: Sequence[int], *, memory_format: Any = None
    ) -> torch.Tensor:
        same = tuple(size) == tuple(tensor.shape) and memory_format is None
        if same and not tensor.requires_grad:
            return tensor
        part = is_functional(tensor) and not is_base(tensor)
        if part and (not tensor.is_contiguous() or math.prod(size) > tensor.numel()):
            raise RuntimeError(
                "resize_: a part of a tensor on an xla device has no memory around it; clone() it "
                "first, or resize the whole tensor"
            )
        kwargs = {} if memory_format is None else {"memory_format": memory_format}
        return redispatch(aten.resize_.default, (tensor, size), kwargs)

    library.impl("resize_", resize)
    library.impl("as_strided_", as_strided)
    library.impl("fill_diagonal_", _fill_diagonal)
    library.impl("polygamma_", _polygamma)


def _polygamma(tensor: torch.Tensor, n: int) -> torch.Tensor:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        torch.empty(1, dtype=tensor.dtype).polygamma_(n)  # raises eager's error
    return tensor.copy_(torch.polygamma(n, tensor))


def _fill_diagonal(tensor: torch.Tensor, value: complex, wrap: bool = False) -> torch.Tensor:
    """By a view of the diagonal, or by a mask."""
    rows, *others = tensor.shape or (1,)
    torch.empty(tensor.shape, device="meta").fill_diagonal_(0)  # raises eager's errors
    if len(others) == 1 and not (wrap and rows > others[0]):
        tensor.diagonal().fill_(value)
        return tensor
    indices = [torch.arange(n, device=tensor.device) for n in tensor.shape]
    if len(others) == 1:
        indices[0] = indices[0] % (others[0] + 1)  # one row is left out between two diagonals
    first, *rest = torch.meshgrid(*indices, indexing="ij")
    mask = functools.reduce(torch.logical_and, [first == other for other in rest])
    return tensor.masked_fill_(mask, value)
