"""Batch norm: the statistics of a batch are of the elements of the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from xla_dynamo.backend.passes.padding.padder import Padded, Padder, dims_of
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused, is_symbolic

from .products import alike
from .reductions import count, divided, left, moments, padded_sum, wide

aten = torch.ops.aten


def _but_channels(x: Padded) -> list[int]:
    """The dimensions over which each channel is normalized."""
    return [d for d in range(len(x.dims)) if d != 1]


def _by_channel(p: Padder, x: Padded, values: Sequence[Any]) -> list[Any]:
    """What has one element a channel, with the layout of the channels of `x`; others as they are.

    With running statistics, the CPU saves none.
    """

    def is_of_channels(value: Any) -> bool:
        return isinstance(value, Padded) and len(value.dims) == 1 and value.dims[0].size != 0

    return [p.moved(each, 0, x.dims[1]) if is_of_channels(each) else each for each in values]


def _column(p: Padder, x: Any, rank: int) -> Any:
    """[channels] as it broadcasts to [n, channels, ...]."""
    return None if x is None else p.emit(aten.view.default, x, [1, -1, *[1] * (rank - 2)])


def _apply(p: Padder, op: Any, a: Padded, b: Any) -> Padded:
    return p.give(p.emit(op, a, b), a.dims)


@pads(
    aten._native_batch_norm_legit_functional.default,
    *(aten._native_batch_norm_legit.no_stats, aten.native_batch_norm.default),
    aten._batch_norm_with_update_functional.default,
)
def batch_norm(p: Padder, x: Padded, weight: Padded | None, bias: Padded | None, *rest: Any) -> Any:
    """With the statistics of the batch; with running ones, padding is as good as the rest."""
    op: Any = p.node.target
    x, outs = p.plainly(x, [1]), p.outs()
    weight, bias, *given = _by_channel(p, x, (weight, bias, *rest))
    if op is aten._native_batch_norm_legit.no_stats:
        running_mean, running_var, training, momentum, eps = None, None, *given
    elif op is aten._batch_norm_with_update_functional.default:
        running_mean, running_var, momentum, eps = given
        training = True
    else:
        running_mean, running_var, training, momentum, eps = given
    dims = _but_channels(x)
    if not training or not x.padded_in(dims):
        made = p.again(x, weight, bias, *given)
        return p.give_all(made, [x.dims, *(dims_of(out) for out in outs[1:])])
    rank, dtype = len(x.dims), x.value.dtype
    if running_mean is None or p.target.platform == "cpu":
        average, var = moments(p, x, dims, 0)
    else:
        average, var = _about_running_mean(p, x, dims, running_mean)
    scale = p.give(p.emit(aten.rsqrt.default, _apply(p, aten.add.Tensor, var, eps)), var.dims)
    y = _apply(p, aten.mul.Tensor, _apply(p, aten.sub.Tensor, x, average), scale)
    for number, how in ((weight, aten.mul.Tensor), (bias, aten.add.Tensor)):
        y = y if number is None else _apply(p, how, y, _column(p, number, rank))
    channels = [p.padded(x.dims[1].size)]
    flat = [
        p.give(p.emit(aten.view.default, each, channels), [x.dims[1]])
        for each in (average, scale, var)
    ]
    results = [p.give(p.emit(aten._to_copy.default, y, dtype=dtype), x.dims), flat[0], flat[1]]
    if running_mean is not None and running_var is not None:
        number = count(x, dims)
        spread = _apply(p, aten.mul.Tensor, flat[2], _as(p, number, flat[2]))
        unbiased = divided(p, spread, sympy.Max(number - 1, 0))
        news = [
            _mixed(p, old, new, momentum)
            for old, new in ((running_mean, flat[0]), (running_var, unbiased))
        ]
        if op is aten._batch_norm_with_update_functional.default:
            raise Refused("a reserve of the batch norm is padded")
        results += news
    return tuple(results[: len(outs)])


def _about_running_mean(
    p: Padder, x: Padded, dims: list[int], near: Padded
) -> tuple[Padded, Padded]:
    """Mean and biased variance in one pass, as the exact program has them where memory is slow."""
    rank, number = len(x.dims), count(x, dims)
    x = wide(p, x, x.value.dtype)
    center = p.give(_column(p, wide(p, near, x.value.dtype), rank), left(x, dims, True))
    distance = p.masked(_apply(p, aten.sub.Tensor, x, center), dims, 0)
    square = _apply(p, aten.mul.Tensor, distance, distance)
    sums = (padded_sum(p, each, dims, True) for each in (distance, square))
    shift, spread = (divided(p, each, number) for each in sums)
    var = _apply(p, aten.sub.Tensor, spread, _apply(p, aten.mul.Tensor, shift, shift))
    average = _apply(p, aten.add.Tensor, shift, center)
    return average, p.give(p.emit(aten.clamp_min.default, var, 0), var.dims)


def _as(p: Padder, number: Any, like: Padded) -> Any:
    """A size of the call in the dtype of a tensor."""
    made = p.runtime(number)
    if not is_symbolic(number):
        return made
    return p.emit(aten._to_copy.default, made, dtype=like.value.dtype)


def _mixed(p: Padder, old: Padded, new: Padded, momentum: Any) -> Padded:
    kept = _apply(p, aten.mul.Tensor, old, 1 - momentum)
    added = _apply(p, aten.mul.Tensor, new, momentum)
    mixed = p.give(p.emit(aten.add.Tensor, kept, added), old.dims)
    return p.give(p.emit(aten._to_copy.default, mixed, dtype=old.value.dtype), old.dims)


@pads(aten._native_batch_norm_legit_no_training.default, aten._batch_norm_no_update.default)
def frozen_batch_norm(p: Padder, x: Padded, *rest: Any) -> Any:
    """Pointwise but for the channels."""
    x = p.plainly(x, [1])
    given = _by_channel(p, x, rest)
    return p.give_all(p.again(x, *given), [x.dims, *(dims_of(out) for out in p.outs()[1:])])


@pads(aten.native_batch_norm_backward.default)
def batch_norm_backward(
    p: Padder,
    grad: Padded,
    x: Padded,
    weight: Padded | None,
    running_mean: Any,
    running_var: Any,
    average: Any,
    scale: Any,
    training: bool,
    eps: float,
    mask: Any,
) -> Any:
    """Means over the elements of the call."""
    x = p.plainly(x, [1])
    weight, running_mean, running_var, average, scale = _by_channel(
        p, x, (weight, running_mean, running_var, average, scale)
    )
    dims, rank, outs = _but_channels(x), len(x.dims), p.outs()
    for d in range(rank):
        grad, x = alike(p, grad, x, d, d)
    grad, x = p.masked(grad, dims, 0), p.masked(x, dims, 0)
    if not training:
        made = p.again(
            grad, x, weight, running_mean, running_var, average, scale, training, eps, mask
        )
        kept = [None if out is None else dims_of(out) for out in outs[1:]]
        return p.give_all(made, [None if outs[0] is None else x.dims, *kept])
    mul, sub = aten.mul.Tensor, aten.sub.Tensor
    center, spread = _column(p, average, rank), _column(p, scale, rank)
    moved = _apply(p, sub, x, center)
    total = padded_sum(p, grad, dims, True)
    along = padded_sum(p, _apply(p, mul, grad, moved), dims, True)
    number = count(x, dims)
    slope = _apply(p, mul, divided(p, along, number), p.emit(mul, spread, spread))
    inner = _apply(p, sub, grad, divided(p, total, number))
    inner = _apply(p, sub, inner, p.emit(mul, moved, slope))
    by_x = _apply(p, mul, inner, spread)
    by_x = by_x if weight is None else _apply(p, mul, by_x, _column(p, weight, rank))
    channels = [p.padded(x.dims[1].size)]
    found = [
        by_x,
        *(
            p.give(p.emit(aten.view.default, each, channels), [x.dims[1]])
            for each in (_apply(p, mul, along, spread), total)
        ),
    ]
    dtypes = [None if v is None else v.dtype for v in p.node.meta["val"]]
    return tuple(
        None
        if dtype is None
        else p.give(p.emit(aten._to_copy.default, each, dtype=dtype), each.dims)
        for dtype, each in zip(dtypes, found, strict=True)
    )
