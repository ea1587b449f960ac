"""Parts of a dimension, and what puts them back: positions are those among the elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from xla_dynamo.backend.passes.padding.layouts import constant, plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused, Size, is_symbolic

from .products import alike

aten = torch.ops.aten


def _start(start: Any, size: Size) -> Any:
    """Where a slice begins, from the front, as an expression of the call's sizes."""
    if start is None:
        return 0
    return size + start if isinstance(start, int) and start < 0 else start


@pads(aten.narrow_copy.default, aten.narrow.default)
def narrow(p: Padder, x: Padded, dim: int, start: Any, length: Any) -> Padded:
    """A slice by its length."""
    return sliced(p, x, dim, start, None, 1)


@pads(aten.slice.Tensor, aten.slice_copy.Tensor)
def sliced(
    p: Padder, x: Padded, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Padded:
    """The length is that which was traced."""
    d = dim % len(x.dims)
    size = p.out()[d]
    if is_symbolic(step) or _is_data(start) or _is_data(end):
        raise Refused("a slice has a step or an end that is no size")
    if size == x.dims[d].size and step == 1:
        return x
    x = p.plainly(x, [d])
    return taken(p, x, d, _first(x.dims[d].size, start), size, step)


def _is_data(value: Any) -> bool:
    return isinstance(value, Padded)


def _first(size: Size, start: Any) -> Any:
    """Where a slice begins; beyond the end, it is empty."""
    first = _start(start, size)
    if isinstance(first, int):
        return min(max(first, 0), size) if isinstance(size, int) else first
    return sympy.Max(0, first)


def taken(p: Padder, x: Padded, d: int, first: Any, size: Size, step: int) -> Padded:
    """Elements first, first + step, ... along `d`, as many as `size` says.

    first: a number, an expression of sizes, or a node.
    """
    length, there = p.padded(size), x.value.shape[d]
    dims = list(x.dims)
    dims[d] = constant(size) if x.dims[d].factors is None else plain(size)
    if isinstance(first, int) and (length == 0 or first + (length - 1) * step < there):
        end = first + (length - 1) * step + 1 if length else first
        return p.give(p.emit(aten.slice.Tensor, x, d, first, end, step), dims)
    at = p.positions(length, x.value.device)
    at = at if step == 1 else p.emit(aten.mul.Tensor, at, step)
    at = at if first == 0 else p.emit(aten.add.Tensor, at, p.runtime(first))
    return p.take(x, d, at, dims[d])


@pads(aten.select.int, aten.select_copy.int)
def select(p: Padder, x: Padded, dim: int, index: Any) -> Padded:
    """One position."""
    d = dim % len(x.dims)
    x = p.plainly(x, [d])
    if _is_data(index):
        raise Refused("an element is selected by an int that is data")
    dims = [each for i, each in enumerate(x.dims) if i != d]
    first = _start(index, x.dims[d].size)
    if isinstance(first, int):
        return p.give(p.emit(aten.select.int, x, d, first), dims)
    at = p.emit(aten.view.default, p.runtime(first), [1])
    x = p.take(x, d, at, plain(1))
    return p.give(p.emit(aten.squeeze.dim, x, d), dims)


@pads(aten.select_backward.default)
def select_backward(p: Padder, grad: Padded, sizes: Sequence[Any], dim: int, index: Any) -> Padded:
    """Zero but at one position."""
    d = dim % len(sizes)
    dims = list(grad.dims)
    dims.insert(d, plain(1))
    x = p.give(p.emit(aten.unsqueeze.default, grad, d), dims)
    return placed(p, None, x, d, p.out()[d], _start(index, p.out()[d]), 1)


@pads(aten.slice_backward.default)
def slice_backward(
    p: Padder, grad: Padded, sizes: Sequence[Any], dim: int, start: Any, end: Any, step: Any
) -> Padded:
    """Zero outside the slice."""
    d = dim % len(sizes)
    return placed(p, None, grad, d, p.out()[d], _first(p.out()[d], start), step)


@pads(aten.slice_scatter.default)
def slice_scatter(
    p: Padder, x: Padded, part: Padded, dim: int, start: Any, end: Any, step: Any
) -> Padded:
    """A part in the place of what was there."""
    d = dim % len(x.dims)
    return placed(p, p.plainly(x, [d]), part, d, p.out()[d], _first(p.out()[d], start), step)


@pads(aten.select_scatter.default)
def select_scatter(p: Padder, x: Padded, part: Padded, dim: int, index: Any) -> Padded:
    """One position in the place of what was there."""
    d = dim % len(x.dims)
    dims = list(part.dims)
    dims.insert(d, plain(1))
    made = p.give(p.emit(aten.unsqueeze.default, part, d), dims)
    return placed(p, p.plainly(x, [d]), made, d, p.out()[d], _start(index, p.out()[d]), 1)


def placed(
    p: Padder, x: Padded | None, part: Padded, d: int, size: Size, first: Any, step: Any
) -> Padded:
    """`part` along `d` from `first` on, as in `taken`, and `x`, or 0, elsewhere."""
    if is_symbolic(step) or _is_data(first):
        raise Refused("a slice has a step or an end that is no size")
    part = p.plainly(part, [d])
    length, device = part.dims[d].size, part.value.device
    at = p.positions(p.padded(size), device)
    at = at if first == 0 else p.emit(aten.sub.Tensor, at, p.runtime(first))
    inside = p.emit(aten.ge.Scalar, at, 0)
    if step != 1:
        on = p.emit(aten.eq.Scalar, p.emit(aten.remainder.Scalar, at, step), 0)
        inside = p.emit(aten.logical_and.default, inside, on)
        at = p.emit(aten.floor_divide.default, at, step)
    op = aten.lt.Tensor if is_symbolic(length) else aten.lt.Scalar
    inside = p.emit(aten.logical_and.default, inside, p.emit(op, at, p.runtime(length)))
    if x is not None:  # other dimensions may be padded in other ways
        for e in range(len(x.dims)):
            if e != d:
                x, part = alike(p, x, part, e, e)
    placed = p.take(part, d, at, plain(size))
    shape = [1] * len(placed.dims)
    shape[d] = p.padded(size)
    other: Any = x
    if x is None:
        options = {"dtype": placed.value.dtype, "device": device}
        other = p.emit(aten.scalar_tensor.default, 0, **options)
    elif x.value.dtype != placed.value.dtype:
        raise Refused("a part has another dtype")
    where = p.emit(aten.view.default, inside, shape)
    dims = [
        b if a.factors is None else a for a, b in zip(placed.dims, (x or placed).dims, strict=True)
    ]
    return p.give(p.emit(aten.where.self, where, placed, other), dims)


@pads(aten.flip.default, "xla_dynamo.reverse_cumsum.default")
def flip(p: Padder, x: Padded, dims: Any) -> Padded:
    """The last element first; what is padded stays behind."""
    if p.node.target is not aten.flip.default:
        x = p.masked(p.plainly(x, [dims]), [dims], 0)
        return p.give(p.again(x, dims), x.dims)
    for d in (d % len(x.dims) for d in dims):
        x = p.plainly(x, [d])
        if x.padded_in([d]):
            last = p.runtime(x.dims[d].size - 1)
            at = p.emit(aten.sub.Tensor, last, p.positions(x.value.shape[d], x.value.device))
            x = p.take(x, d, at, x.dims[d])
        else:
            x = p.give(p.emit(aten.flip.default, x, [d]), x.dims)
    return x


@pads(aten.roll.default)
def roll(p: Padder, x: Padded, shifts: Any, dims: Any = ()) -> Padded:
    """By positions, modulo the size of the call."""
    if not dims:
        raise Refused("it rolls all elements as one row")
    for shift, d in zip(shifts, (d % len(x.dims) for d in dims), strict=True):
        x = p.plainly(x, [d])
        if is_symbolic(shift) or _is_data(shift):
            raise Refused("it is rolled by a size")
        if not x.padded_in([d]):
            x = p.give(p.emit(aten.roll.default, x, [shift], [d]), x.dims)
            continue
        at = p.emit(aten.sub.Tensor, p.positions(x.value.shape[d], x.value.device), shift)
        at = p.emit(aten.remainder.Tensor, at, p.runtime(x.dims[d].size))
        x = p.take(x, d, at, x.dims[d])
    return x


def _split(p: Padder, x: Padded, dim: int) -> tuple[Padded, ...]:
    """Parts one after the other, whose sizes were traced."""
    d = dim % len(x.dims)
    x = p.plainly(x, [d])
    parts, first = [], 0
    for shape in p.outs():
        parts.append(taken(p, x, d, first, shape[d], 1))
        first = first + shape[d]
    return tuple(parts)


@pads(
    *(aten.split.Tensor, aten.split_with_sizes.default, aten.unsafe_split.Tensor),
    *(aten.split_copy.Tensor, aten.split_with_sizes_copy.default),
    aten.unsafe_split_with_sizes.default,
)
def split(p: Padder, x: Padded, _: Any, dim: int = 0) -> tuple[Padded, ...]:
    """split and chunk."""
    return _split(p, x, dim)


@pads(aten.unbind.int, aten.unbind_copy.int)
def unbind(p: Padder, x: Padded, dim: int = 0) -> tuple[Padded, ...]:
    """Of a dimension whose size is known."""
    d = dim % len(x.dims)
    if x.padded_in([d]):
        raise Refused("it gives as many tensors as a size says")
    dims = [each for i, each in enumerate(x.dims) if i != d]
    return p.give_all(p.again(x, dim), [dims for _ in p.outs()])
