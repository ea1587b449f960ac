"""Ops whose integers only select, as functions of 0-d tensors in the place of the integers.

Indices and starts count from the beginning, or from the end where they are negative. Slices are
given by their span, the distance from the start to behind the last element, in the place of an end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import xla_dynamo.backend.ops  # noqa: F401  (registers what the forms call)

aten = torch.ops.aten
ops = torch.ops.xla_dynamo


def _take(x: Any, dim: int, index: Any) -> Any:
    return ops.dynamic_slice.default(x, dim, index, 1).squeeze(dim)


def _put(x: Any, part: Any, dim: int, index: Any) -> Any:
    part = part.to(x.dtype).unsqueeze(dim)
    return ops.dynamic_update.default(x, part, dim, index)


def _take_backward(grad: Any, sizes: Sequence[int], dim: int, index: Any) -> Any:
    dim = dim % len(sizes)
    return ops.dynamic_slice_backward.default(grad.unsqueeze(dim), sizes, dim, index)


def _part(x: Any, dim: int, start: Any, span: int, step: int) -> Any:
    part = ops.dynamic_slice.default(x, dim, start, span)
    return part if step == 1 else aten.slice.Tensor(part, dim, 0, span, step)


def _put_part(x: Any, part: Any, dim: int, start: Any, span: int, step: int) -> Any:
    part = part.to(x.dtype)
    if step != 1:
        part = aten.slice_scatter.default(_part(x, dim, start, span, 1), part, dim, 0, span, step)
    return ops.dynamic_update.default(x, part, dim, start)


def _part_backward(
    grad: Any, sizes: Sequence[int], dim: int, start: Any, span: int, step: int
) -> Any:
    if step != 1:
        dense = [span if at == dim % len(sizes) else size for at, size in enumerate(sizes)]
        grad = aten.slice_backward.default(grad, dense, dim, 0, span, step)
    return ops.dynamic_slice_backward.default(grad, sizes, dim, start)


def _rolled(x: Any, shifts: Sequence[Any], dims: Sequence[int]) -> Any:
    rolled = x if dims else x.reshape(-1)
    for shift, dim in zip(shifts, dims or [0], strict=True):
        size = rolled.shape[dim]
        twice = torch.cat([rolled, rolled], dim)
        rolled = ops.dynamic_slice.default(twice, dim, torch.remainder(-shift, size), size)
    return rolled.view(x.shape)


def _range(start: Any, length: int, step: int, **options: Any) -> Any:
    dtype = options.pop("dtype", None) or torch.int64
    numbers = torch.arange(0, length * step, step, dtype=torch.int64, **options)
    return (numbers + start).to(dtype)


# The op that enters a graph: where its integers are, and the op as a function of 0-d tensors.
FORMS: dict[Any, tuple[int, Callable[..., Any]]] = {
    aten.select.int: (2, _take),
    aten.select_scatter.default: (3, _put),
    aten.select_backward.default: (3, _take_backward),
    aten.slice.Tensor: (2, _part),
    aten.slice_scatter.default: (3, _put_part),
    aten.slice_backward.default: (3, _part_backward),
    aten.roll.default: (1, _rolled),
    aten.arange.start: (0, _range),
    aten.arange.start_step: (0, _range),
}
