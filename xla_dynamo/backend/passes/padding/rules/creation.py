"""Tensors that are made of sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.layouts import plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder, constants, dims_of
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused, Size, is_symbolic

from .pointwise import as_number

aten = torch.ops.aten
_LIKE = (aten.zeros_like.default, aten.ones_like.default, aten.empty_like.default)


@pads(aten.zeros.default, aten.ones.default, aten.empty.memory_format)
def filled(p: Padder, size: Sequence[Size], *options: Any) -> Padded:
    """zeros, ones, empty."""
    return p.give(p.again([p.padded(n) for n in size], *options), constants(p.out()))


@pads(aten.new_zeros.default, aten.new_ones.default, aten.new_empty.default)
def newly_filled(p: Padder, x: Padded, size: Sequence[Size], *options: Any) -> Padded:
    """Of the dtype and device of `x`."""
    return p.give(p.again(x, [p.padded(n) for n in size], *options), constants(p.out()))


@pads(*_LIKE, aten.full_like.default)
def filled_like(p: Padder, x: Padded, *options: Any) -> Padded:
    """Of the shape of `x`."""
    if options and (is_symbolic(options[0]) or isinstance(options[0], Padded)):
        return _of_number(p, options[0])
    return p.give(p.again(x, *options), constants(x.sizes))


@pads(aten.full.default)
def full(p: Padder, size: Sequence[Size], number: Any, *options: Any) -> Padded:
    """A number that may be a size."""
    if is_symbolic(number) or isinstance(number, Padded):
        return _of_number(p, number)
    return p.give(p.again([p.padded(n) for n in size], number, *options), constants(p.out()))


@pads(aten.new_full.default)
def newly_full(p: Padder, x: Padded, size: Sequence[Size], number: Any, *options: Any) -> Padded:
    """The same, of the dtype and device of `x`."""
    if is_symbolic(number) or isinstance(number, Padded):
        return _of_number(p, number)
    return p.give(p.again(x, [p.padded(n) for n in size], number, *options), constants(p.out()))


def _of_number(p: Padder, number: Any) -> Padded:
    """The traced op's result, all of whose elements are a number of the call."""
    dtype = p.node.meta["val"].dtype
    made = p.emit(aten._to_copy.default, as_number(p, number), dtype=dtype)
    shape = [p.padded(n) for n in p.out()]
    return p.give(p.emit(aten.expand.default, made, shape), constants(p.out()))


@pads(aten.scalar_tensor.default)
def scalar_tensor(p: Padder, number: Any, *options: Any) -> Padded:
    """A number of the call as a tensor."""
    return _of_number(p, number)


@pads(aten.arange.start_step, aten.arange.start, aten.arange.default)
def arange(p: Padder, *args: Any) -> Padded:
    """start, start + step, ...: the padding goes on counting."""
    count = {"start_step": 3, "start": 2, "default": 1}[p.node.target._overloadname]  # type: ignore[union-attr]
    start, end, step = {1: (0, *args[:1], 1), 2: (*args[:2], 1), 3: args[:3]}[count]
    if isinstance(start, Padded) or isinstance(end, Padded) or not isinstance(step, int):
        raise Refused("a range has a step that is no int, or an end that is data")
    (size,) = p.out()
    value = p.node.meta["val"]
    at = p.positions(p.padded(size), value.device)
    if step != 1:
        at = p.emit(aten.mul.Tensor, at, step)
    if start != 0:
        if isinstance(start, float):
            raise Refused("a range starts at a float")
        at = p.emit(aten.add.Tensor, at, p.runtime(start))
    return p.give(p.emit(aten._to_copy.default, at, dtype=value.dtype), [plain(size)])


@pads(aten.eye.default, aten.eye.m)
def eye(p: Padder, *args: Any) -> Padded:
    """The diagonal goes on in the padding."""
    count = 2 if p.node.target is aten.eye.m else 1
    sizes = [p.padded(n) for n in args[:count]]
    return p.give(p.again(*sizes, *args[count:]), dims_of(p.out()))


@pads(aten.tril.default, aten.triu.default)
def triangle(p: Padder, x: Padded, diagonal: Any = 0) -> Padded:
    """Positions from the start of both dimensions tell."""
    if is_symbolic(diagonal):
        raise Refused("a diagonal is given by a size")
    x = p.plainly(x, [-2, -1])
    dims = [*x.dims[:-2], *(plain(dim.size) for dim in x.dims[-2:])]
    return p.give(p.again(x, diagonal), dims)
