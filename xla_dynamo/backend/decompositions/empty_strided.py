"""Decompose empty_strided with gaps or overlaps to a view of a 1-d tensor that has none.

XLA's arrays are dense. An uninitialised tensor has no values to move, so a dense array as large as
its memory is computed, and the output is a view of that (executable/output_plan.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from xla_dynamo.backend.graph.fx import is_symbolic
from xla_dynamo.backend.graph.memory_layout import extent, fills_memory

aten = torch.ops.aten


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **_: Any,
) -> Tensor:
    """aten.empty_strided with strides that no dense array has; NotImplemented for others."""
    if any(map(is_symbolic, (*size, *stride))) or fills_memory(size, stride):
        return NotImplemented
    if 0 in size:
        return torch.empty(size, dtype=dtype, device=device)
    flat = torch.empty(extent(size, stride), dtype=dtype, device=device)
    return flat.as_strided(size, stride)


def new_empty_strided(
    x: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **_: Any,
) -> Tensor:
    """aten.new_empty_strided with such strides."""
    return empty_strided(size, stride, dtype=dtype or x.dtype, device=device or x.device)


BLANK_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.empty_strided.default: empty_strided,
    aten.new_empty_strided.default: new_empty_strided,
}
