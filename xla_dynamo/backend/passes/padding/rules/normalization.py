"""Layer and group norm: rows of a batch are on their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.padder import Padded, Padder, dims_of
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused

from .reductions import count, divided, moments, padded_sum

aten = torch.ops.aten


def _apply(p: Padder, op: Any, a: Padded, b: Padded) -> Padded:
    """An op of two tensors, of which `b` broadcasts to `a`."""
    return p.give(p.emit(op, a, p.laid_out(b, a.dims)), a.dims)


def _cast(p: Padder, x: Padded, dtype: torch.dtype) -> Padded:
    return p.give(p.emit(aten._to_copy.default, x, dtype=dtype), x.dims)


@pads(aten.native_layer_norm.default)
def layer_norm(
    p: Padder, x: Padded, shape: Sequence[Any], weight: Any, bias: Any, eps: float
) -> Any:
    """Where the normalized dimensions are padded, by the statistics of their elements."""
    lead, rank = len(x.dims) - len(shape), len(x.dims)
    inner = list(range(lead, rank))
    x = p.varying(x, inner)
    kept = [*x.dims[:lead], *dims_of([1] * len(shape))]
    if not x.padded_in(inner):
        return p.give_all(p.again(x, list(shape), weight, bias, eps), [x.dims, kept, kept])
    average, var = moments(p, x, inner, 0)
    scale = p.give(p.emit(aten.rsqrt.default, p.emit(aten.add.Tensor, var, eps)), var.dims)
    y = _apply(p, aten.mul.Tensor, _apply(p, aten.sub.Tensor, x, average), scale)
    y = y if weight is None else _apply(p, aten.mul.Tensor, y, weight)
    y = y if bias is None else _apply(p, aten.add.Tensor, y, bias)
    dtypes = [value.dtype for value in p.node.meta["val"]]
    results = zip((y, average, scale), dtypes, strict=True)
    return tuple(_cast(p, each, dtype) for each, dtype in results)


@pads(aten.native_layer_norm_backward.default)
def layer_norm_backward(
    p: Padder,
    grad: Padded,
    x: Padded,
    shape: Sequence[Any],
    average: Padded,
    scale: Padded,
    weight: Any,
    bias: Any,
    mask: Any,
) -> Any:
    """The gradients of weight and bias are sums over rows."""
    lead, rank = len(x.dims) - len(shape), len(x.dims)
    rows, inner, outs = list(range(lead)), list(range(lead, rank)), p.outs()
    x = p.varying(x)
    grad, average, scale = (p.laid_out(each, x.dims) for each in (grad, average, scale))
    grad, x, average, scale = (p.masked(each, rows, 0) for each in (grad, x, average, scale))
    if not x.padded_in(inner):
        made = p.again(grad, x, list(shape), average, scale, weight, bias, mask)
        weights = [None if out is None else dims_of(out) for out in outs[1:]]
        return p.give_all(made, [None if outs[0] is None else x.dims, *weights])
    mul, sub = aten.mul.Tensor, aten.sub.Tensor
    grad, x = p.masked(grad, inner, 0), p.masked(x, inner, 0)
    normed = _apply(p, mul, _apply(p, sub, x, average), scale)
    normed = p.masked(normed, inner, 0)
    slope = grad if weight is None else p.masked(_apply(p, mul, grad, weight), inner, 0)
    number = count(x, inner)
    total = divided(p, padded_sum(p, slope, inner, True), number)
    along = divided(p, padded_sum(p, _apply(p, mul, slope, normed), inner, True), number)
    inside = _apply(p, sub, _apply(p, sub, slope, total), _apply(p, mul, normed, along))
    by_x = _apply(p, mul, inside, scale)
    by_weight = padded_sum(p, _apply(p, mul, grad, normed), rows, False)
    by_bias = padded_sum(p, grad, rows, False)
    results = zip((by_x, by_weight, by_bias), p.node.meta["val"], strict=True)
    return tuple(None if v is None else _cast(p, each, v.dtype) for each, v in results)


def _refuse_padded(x: Padded, dims: Any) -> None:
    if x.padded_in(dims):
        raise Refused("it normalizes a padded dimension", [x.dims[d].size for d in dims])


@pads(aten.native_group_norm.default)
def group_norm(p: Padder, x: Padded, weight: Any, bias: Any, *rest: Any) -> Any:
    """Elements of a batch are on their own."""
    _refuse_padded(x, range(1, len(x.dims)))
    sizes = [p.padded(size) for size in rest[:3]]
    made = p.again(x, weight, bias, *sizes, *rest[3:])
    kept = [[x.dims[0], *dims_of(out[1:])] for out in p.outs()[1:]]
    return p.give_all(made, [x.dims, *kept])


@pads(aten.native_group_norm_backward.default)
def group_norm_backward(
    p: Padder, grad: Padded, x: Padded, average: Padded, scale: Padded, weight: Any, *rest: Any
) -> Any:
    """The gradients of weight and bias are sums over the batch."""
    _refuse_padded(x, range(1, len(x.dims)))
    four = [p.masked(p.plainly(each, [0]), [0], 0) for each in (grad, x, average, scale)]
    sizes = [p.padded(size) for size in rest[:3]]
    outs = p.outs()
    kept = [None if out is None else dims_of(out) for out in outs[1:]]
    made = p.again(*four, weight, *sizes, *rest[3:])
    return p.give_all(made, [None if outs[0] is None else four[1].dims, *kept])
