"""Decompose ops with data-dependent shapes to padded ops, and a count that the host reads.

XLA's programs have static shapes. A padded op computes its result in the largest possible shape,
valid elements first, and their count; the host reads the count and takes that many. Where nothing
bounds the shape (repeat_interleave, bincount), the size is computed and read first, and then the
op for that size. `padded` finds the function of an op, written in terms of `Steps`, which
passes/aten/pad_dynamic_shapes.py takes as nodes of a graph, compat/execution/dynamic_shapes.py on
lazy tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor

import xla_dynamo.backend.ops  # noqa: F401  (registers the padded ops)

aten = torch.ops.aten
ops = torch.ops.xla_dynamo


class Steps(Protocol):
    """How a decomposition is carried out: as nodes of a graph, or on lazy tensors."""

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """The results of `op`, which runs on the device."""
        ...

    def value(self, operand: Any) -> Tensor:
        """A tensor with the shape and dtype of an operand."""
        ...

    def size(self, count: Any, complaint: str) -> Any:
        """The value of a 0-d integer tensor, for which the host waits.

        Raises:
            RuntimeError: it is negative; the text is `complaint`.
        """
        ...

    def leading(self, padded: Any, count: Any, dim: int = 0, transposed: bool = False) -> Any:
        """The first `count` (0-d) elements of `padded` along `dim`, as a matrix also transposed."""
        ...


def _nonzero(steps: Steps, x: Any) -> Any:
    padded, count = steps.call(ops.nonzero_padded.default, x)
    return steps.leading(padded, count, 1, transposed=True)  # eager's strides


def _masked_select(steps: Steps, x: Any, mask: Any) -> Any:
    return steps.leading(*steps.call(ops.masked_select_padded.default, x, mask))


def _index(steps: Steps, x: Any, indices: Sequence[Any]) -> Any:
    """A single mask selects padded elements; among other indices, a mask becomes its positions."""
    present = [dim for dim, index in enumerate(indices) if index is not None]
    if len(present) == 1:
        dim = present[0]
        padded, count = steps.call(ops.index_padded.default, x, indices[dim], dim)
        return steps.leading(padded, count, dim)
    shape = steps.value(x).shape
    positions: list[Any] = []
    for at, index in enumerate(indices):
        mask = None if index is None else steps.value(index)
        if mask is None or mask.dtype not in (torch.bool, torch.uint8):
            positions.append(index)
            continue
        first = len(positions)
        if mask.shape != shape[first : first + mask.dim()]:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {at} does not match the "
                f"shape of the indexed tensor {list(shape)} at index {first}"
            )
        found = _nonzero(steps, index)
        columns = range(mask.dim())
        positions.extend(steps.call(aten.select.int, found, 1, column) for column in columns)
    return steps.call(aten.index.Tensor, x, positions)


def _unique(steps: Steps, x: Any, sorted: bool = True, return_inverse: bool = False) -> Any:
    return _groups(steps, x, None, False, return_inverse, False)[:2]


def _unique2(
    steps: Steps,
    x: Any,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    return _groups(steps, x, None, False, return_inverse, return_counts)


def _unique_dim(
    steps: Steps,
    x: Any,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    # Eager returns the inverse and the counts whether they are asked for or not.
    return _groups(steps, x, dim % steps.value(x).dim(), False, True, True)


def _unique_consecutive(
    steps: Steps,
    x: Any,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    dim = None if dim is None else dim % steps.value(x).dim()
    asked = (return_inverse, return_counts) if dim is None else (True, True)
    return _groups(steps, x, dim, True, *asked)


def _groups(
    steps: Steps, x: Any, dim: int | None, consecutive: bool, inverse: bool, counts: bool
) -> Any:
    values, groups, sizes, count = steps.call(ops.unique_padded.default, x, dim, consecutive)
    empty = steps.call(aten.new_empty.default, x, [0], dtype=torch.int64)
    return (
        steps.leading(values, count, dim or 0),
        groups if inverse else empty,
        steps.leading(sizes, count) if counts else empty,
    )


def _repeat_interleave(steps: Steps, repeats: Any) -> Any:
    count = steps.call(ops.repeats_size.default, repeats)
    size = steps.size(count, "repeats can not be negative")
    return steps.call(aten.repeat_interleave.Tensor, repeats, output_size=size)


def _bincount(steps: Steps, x: Any, weights: Any = None, minlength: int = 0) -> Any:
    count = steps.call(ops.bincount_size.default, x, minlength)
    size = steps.size(count, "bincount only supports 1-d non-negative integral inputs.")
    return steps.call(ops.sized_bincount.default, x, weights, size)


def _nms(steps: Steps, boxes: Any, scores: Any, iou_threshold: float) -> Any:
    return steps.leading(*steps.call(ops.nms_padded.default, boxes, scores, iou_threshold))


def tells_on_zeros(op: Any, args: Sequence[Any]) -> bool:
    """Whether eager raises the same error for zeros as for other operands of these shapes.

    It does not for a mask among indices, whose count of elements decides.
    """
    return op is not aten.index.Tensor or sum(index is not None for index in args[1]) < 2


PADDED: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        aten.nonzero.default: _nonzero,
        aten.masked_select.default: _masked_select,
        aten.index.Tensor: _index,
        aten._unique.default: _unique,
        aten._unique2.default: _unique2,
        aten.unique_dim.default: _unique_dim,
        aten.unique_consecutive.default: _unique_consecutive,
        aten.repeat_interleave.Tensor: _repeat_interleave,
        aten.bincount.default: _bincount,
    }
)
# Of ops that other libraries define, perhaps later, by name.
_PADDED_BY_NAME: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"torchvision.nms.default": _nms}
)


def padded(op: Any) -> Callable[..., Any] | None:
    """The decomposition of `op`, if it has one."""
    return PADDED.get(op) or _PADDED_BY_NAME.get(str(op))
