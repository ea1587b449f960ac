"""Ops whose shape depends on data -> ops of a shape that bounds it, and the number of elements.

A program of XLA has static shapes. So it computes `whole` arrays, what there is first, next to its
count; the host reads the count, and takes that many (a step of `Steps`). Where nothing bounds the
shape (repeat_interleave, bincount), the count comes first and the op is computed for that size.
`COUNTED` says which steps an op is made of. Importing this module registers the ops;
lowering/rules/counted.py lowers them, and what is here runs where they fall back to eager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten
ops = torch.ops.xla_dynamo


def _op(name: str, schema: str) -> Callable[..., Any]:
    return torch.library.custom_op(f"xla_dynamo::{name}", mutates_args=(), schema=schema)


def _padded(x: Tensor, size: int, dim: int = 0) -> Tensor:
    """`x` with zeros behind it along `dim`, up to `size`."""
    padding = [0, 0] * (x.dim() - dim - 1) + [0, size - x.shape[dim]]
    return F.pad(x, padding).contiguous()


def _number(n: int) -> Tensor:
    return torch.tensor(n, dtype=torch.int64)


@_op("nonzero_whole", "(Tensor x) -> (Tensor, Tensor)")
def nonzero_whole(x: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates of the nonzeros as columns, [x.dim(), x.numel()], and their number."""
    found = x.nonzero()
    return _padded(found.t().contiguous(), x.numel(), 1), _number(len(found))


@nonzero_whole.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty((x.dim(), x.numel()), dtype=torch.int64), _count_of(x)


def _count_of(x: Tensor) -> Tensor:
    return x.new_empty((), dtype=torch.int64)


@_op("masked_select_whole", "(Tensor x, Tensor mask) -> (Tensor, Tensor)")
def masked_select_whole(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The elements at which `mask` is true, 1-d, after broadcasting, and their number."""
    found = torch.masked_select(x, mask)
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    return _padded(found, math.prod(shape)), _number(len(found))


@masked_select_whole.register_fake
def _(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    return x.new_empty((math.prod(shape),)), _count_of(x)


@_op("index_whole", "(Tensor x, Tensor mask, int dim) -> (Tensor, Tensor)")
def index_whole(x: Tensor, mask: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """x[:, mask], where `mask` is over the dimensions from `dim` on, and how many it picks."""
    found = x[(*[slice(None)] * dim, mask)]
    return _padded(found, mask.numel(), dim), _number(found.shape[dim])


@index_whole.register_fake
def _(x: Tensor, mask: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    shape = [*x.shape[:dim], mask.numel(), *x.shape[dim + mask.dim() :]]
    return x.new_empty(shape), _count_of(x)


_GROUPS = "-> (Tensor values, Tensor inverse, Tensor counts, Tensor number)"


@_op("unique_whole", f"(Tensor x, int? dim, bool consecutive) {_GROUPS}")
def unique_whole(x: Tensor, dim: int | None, consecutive: bool) -> tuple[Tensor, ...]:
    """Distinct elements (or slices along `dim`), the group of each, the groups' sizes and number.

    consecutive: only neighbours are compared; otherwise the groups are in ascending order.
    """
    find = torch.unique_consecutive if consecutive else torch.unique
    values, inverse, counts = find(x, return_inverse=True, return_counts=True, dim=dim)
    size = x.numel() if dim is None else x.shape[dim]
    return _padded(values, size, dim or 0), inverse, _padded(counts, size), _number(len(counts))


@unique_whole.register_fake
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


@_op("bincount_of_size", "(Tensor x, Tensor? weights, SymInt size) -> Tensor")
def bincount_of_size(x: Tensor, weights: Tensor | None, size: int) -> Tensor:
    """torch.bincount with `size` bins."""
    return torch.bincount(x, weights, size)


@bincount_of_size.register_fake
def _(x: Tensor, weights: Tensor | None, size: int) -> Tensor:
    single = weights is not None and weights.dtype == torch.float32
    dtype = torch.int64 if weights is None else torch.float32 if single else torch.float64
    return x.new_empty((size,), dtype=dtype)


class Steps(Protocol):
    """How the steps of a counted op are taken: as nodes of a graph, or on lazy tensors."""

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """What `op` computes on the device."""
        ...

    def value(self, operand: Any) -> Tensor:
        """A tensor of the shape and dtype of an operand."""
        ...

    def number(self, count: Any, complaint: str) -> Any:
        """The value of a 0-d integer tensor, for which the host waits; an error if negative."""
        ...

    def leading(self, whole: Any, count: Any, dim: int = 0, transposed: bool = False) -> Any:
        """As many elements along `dim` as the 0-d tensor `count` says."""
        ...


def _nonzero(steps: Steps, x: Any) -> Any:
    whole, count = steps.call(ops.nonzero_whole.default, x)
    return steps.leading(whole, count, 1, transposed=True)  # eager's strides


def _masked_select(steps: Steps, x: Any, mask: Any) -> Any:
    return steps.leading(*steps.call(ops.masked_select_whole.default, x, mask))


def _index(steps: Steps, x: Any, indices: Sequence[Any]) -> Any:
    """One mask: what there can be of it. Among other indices, a mask becomes its positions."""
    present = [at for at, index in enumerate(indices) if index is not None]
    if len(present) == 1:
        dim = present[0]
        whole, count = steps.call(ops.index_whole.default, x, indices[dim], dim)
        return steps.leading(whole, count, dim)
    shape = steps.value(x).shape
    positions: list[Any] = []
    for number, index in enumerate(indices):
        mask = None if index is None else steps.value(index)
        if mask is None or mask.dtype not in (torch.bool, torch.uint8):
            positions.append(index)
            continue
        first = len(positions)
        if mask.shape != shape[first : first + mask.dim()]:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {number} does not match the "
                f"shape of the indexed tensor {list(shape)} at index {first}"
            )
        found = _nonzero(steps, index)
        columns = range(mask.dim())
        positions.extend(steps.call(aten.select.int, found, 1, at) for at in columns)
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
    # Eager gives these two whatever is asked for.
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
    values, groups, sizes, number = steps.call(ops.unique_whole.default, x, dim, consecutive)
    blank = steps.call(aten.new_empty.default, x, [0], dtype=torch.int64)
    return (
        steps.leading(values, number, dim or 0),
        groups if inverse else blank,
        steps.leading(sizes, number) if counts else blank,
    )


def _repeat_interleave(steps: Steps, repeats: Any) -> Any:
    count = steps.call(ops.repeats_size.default, repeats)
    size = steps.number(count, "repeats can not be negative")
    return steps.call(aten.repeat_interleave.Tensor, repeats, output_size=size)


def _bincount(steps: Steps, x: Any, weights: Any = None, minlength: int = 0) -> Any:
    count = steps.call(ops.bincount_size.default, x, minlength)
    size = steps.number(count, "bincount only supports 1-d non-negative integral inputs.")
    return steps.call(ops.bincount_of_size.default, x, weights, size)


def tells_on_zeros(op: Any, args: Sequence[Any]) -> bool:
    """Whether eager raises for zeros what it raises for other operands of these shapes.

    Not for a mask among indices: it picks another number of elements.
    """
    return op is not aten.index.Tensor or sum(index is not None for index in args[1]) < 2


COUNTED: Mapping[Any, Callable[..., Any]] = MappingProxyType(
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
