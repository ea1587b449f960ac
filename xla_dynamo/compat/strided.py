"""as_strided on a view -> as_strided on the tensor whose memory it is.

Its strides and offset address memory. A recorded view has none; the tensor that it is a view of is
dense, so that there they mean what they mean in eager PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .functional import is_functional

aten = torch.ops.aten


def register_strided(library: torch.library.Library, slow: Callable[..., Any]) -> None:
    """Register the kernel; `slow(op, args, kwargs)` is the way that PyTorch has for `op`."""

    def as_strided(
        tensor: torch.Tensor,
        size: Sequence[int],
        stride: Sequence[int],
        storage_offset: int | None = None,
    ) -> torch.Tensor:
        if not is_functional(tensor):
            return slow(aten.as_strided.default, (tensor, size, stride, storage_offset), {})
        base = tensor._base if tensor._is_view() else None
        whole = tensor if base is None or base.dtype is not tensor.dtype else base
        if storage_offset is None and whole.numel() != tensor.numel():
            raise RuntimeError(
                "as_strided: a view on an xla device does not know where it begins in memory; give "
                "storage_offset, or index the tensor instead"
            )
        offset = storage_offset or 0
        _check(whole, size, stride, offset)
        return slow(aten.as_strided.default, (whole, size, stride, offset), {})

    library.impl("as_strided", as_strided)


def _check(whole: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> None:
    """Raise eager's error for addresses beyond the tensor's memory."""
    if 0 in size:
        return
    end = offset + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if end > whole.numel():
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and "
            f"itemsize {whole.itemsize} requiring a storage size of {end * whole.itemsize} are out "
            f"of bounds for storage of size {whole.numel() * whole.itemsize}"
        )
