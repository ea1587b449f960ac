"""Convolutions over a padded batch and padded space.

Zeros behind the elements are what a convolution's own padding puts there, so that the results that
count are the same; those behind them are padding again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.layouts import Dim, plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder, dims_of
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused

aten = torch.ops.aten


def _operands(p: Padder, x: Padded, weight: Padded, rest: Any) -> tuple[Padded, Padded]:
    """Input and weight with zeros in the padding of space and of the input's channels."""
    transposed, groups = rest[-3], rest[-1]
    if weight.padded_in(range(2, len(weight.dims))):
        raise Refused("a kernel is padded", weight.sizes[2:])
    if groups != 1 and (x.padded_in([1]) or weight.padded_in([0, 1])):
        raise Refused("channels in groups are padded", [x.dims[1].size, *weight.sizes[:2]])
    x, weight = p.plainly(x), p.plainly(weight)
    channels = 0 if transposed else 1
    return p.masked(x, range(1, len(x.dims)), 0), p.masked(weight, [channels], 0)


@pads(aten.convolution.default)
def convolution(p: Padder, x: Padded, weight: Padded, bias: Any, *rest: Any) -> Padded:
    """The batch is on its own."""
    if len(x.dims) != len(weight.dims):
        raise Refused("it has no batch", x.sizes)
    x, weight = _operands(p, x, weight, rest)
    bias = None if bias is None else p.plainly(bias)
    made = p.again(x, weight, bias, *rest)
    return _result(p, made, x.dims[0], p.out())


def _result(p: Padder, made: Any, batch: Dim, out: Sequence[Any]) -> Padded:
    for d, size in enumerate(out):
        wanted, there = p.padded(size), made.meta["val"].shape[d]
        if wanted < there:
            made = p.emit(aten.slice.Tensor, made, d, 0, wanted)
    return p.give(made, [batch, *map(plain, out[1:])])


@pads(aten.convolution_backward.default)
def convolution_backward(p: Padder, grad: Padded, x: Padded, weight: Padded, *rest: Any) -> Any:
    """The gradients of weight and bias are sums over batch and space."""
    x, weight = _operands(p, x, weight, rest[:-1])
    x = p.masked(x, [0], 0)
    grad = p.masked(p.plainly(grad), range(len(grad.dims)), 0)
    sizes, *others = rest
    sizes = None if sizes is None else [p.padded(n) for n in sizes]
    channels = 1 if others[-4] else 0
    weight = p.masked(weight, [channels], 0)
    made = p.again(grad, x, weight, sizes, *others)
    outs = p.outs()
    dims = [None if out is None else dims_of(out) for out in outs]
    if dims[0] is not None:
        dims[0] = [x.dims[0], *dims[0][1:]]
    return p.give_all(made, dims)
