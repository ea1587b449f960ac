"""Uninitialised tensors whose strides leave gaps or overlap -> a view of a 1-d one that has none.

XLA's arrays are dense. What is blank has no values to move, so the dense array that takes up all of
the memory is computed, and a result is a view of it (outputs.py), with the strides asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from xla_dynamo.backend.graph.fx import is_symbolic

aten = torch.ops.aten


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **_: Any,
) -> Tensor:
    """aten.empty_strided of strides that no dense array has; NotImplemented for others."""
    if any(map(is_symbolic, (*size, *stride))) or _is_dense(size, stride):
        return NotImplemented
    if 0 in size:
        return torch.empty(size, dtype=dtype, device=device)
    length = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return torch.empty(length, dtype=dtype, device=device).as_strided(size, stride)


def new_empty_strided(
    x: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **_: Any,
) -> Tensor:
    """aten.new_empty_strided, likewise."""
    return empty_strided(size, stride, dtype=dtype or x.dtype, device=device or x.device)


def _is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    expected = 1
    for step, n in sorted((step, n) for step, n in zip(stride, size, strict=True) if n > 1):
        if step != expected:
            return False
        expected *= n
    return True


BLANK_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.empty_strided.default: empty_strided,
    aten.new_empty_strided.default: new_empty_strided,
}
