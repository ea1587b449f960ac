"""Losses of class indices and their gradients: one gather forward, one comparison backward.

The gradient of a negative log-likelihood compares an iota of classes with the target: dense and
elementwise, so that it fuses into the log-softmax gradient after it, where a scatter would not.
Margin losses compute all pairs of classes.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import PerPlatform, lower

from ._promotion import compute

aten = torch.ops.aten

NONE, MEAN, SUM = range(3)


@lower(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss_forward(
    x: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int
) -> tuple[Array, Array]:
    """Classes are axis 1 (0 without a batch); a mean over no targets is NaN."""
    return _loss(x, None, target, weight, reduction, ignore_index)


@lower(torch.ops.xla_dynamo.nll_loss_of_parts.default)
def nll_loss_of_parts(
    below: Array,
    log_total: Array,
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Array, Array]:
    """Only one number of each row is computed: x[i] - s is (x - s)[i]."""
    return _loss(below, log_total, target, weight, reduction, ignore_index)


def _loss(
    x: Array,
    log_total: Array | None,
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Array, Array]:
    axis = min(x.ndim - 1, 1)
    total = dtypes.accumulation(x.dtype)
    ignored, weights, place = _targets(x.dtype, target, weight, ignore_index)
    picked = (at if log_total is None else at_of_computed)(x, place, axis)
    picked = picked if log_total is None else picked - log_total
    loss = jnp.where(ignored, 0, -picked.squeeze(axis).astype(total) * weights)
    if reduction == NONE and x.ndim > 1:
        return loss, jnp.zeros((), total)
    loss, count = jnp.sum(loss), jnp.sum(weights)  # without a batch, of a scalar
    return (loss / count if reduction == MEAN else loss), count


def at(x: Array, place: Array, axis: int) -> Array:
    return jnp.take_along_axis(x, place, axis, mode="promise_in_bounds")


# Of an array that is computed anyway, for a sum along `axis` say.
at_of_computed = PerPlatform(at)


@lower(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(
    grad: Array,
    x: Array,
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: Array,
) -> Array:
    axis = min(x.ndim - 1, 1)
    share = nll_loss_row_gradient(grad, target, weight, reduction, ignore_index, total_weight)
    _, _, place = _targets(x.dtype, target, weight, ignore_index)
    hit = lax.broadcasted_iota(place.dtype, x.shape, axis) == place
    return jnp.where(hit, share, 0).astype(x.dtype)


@lower(torch.ops.xla_dynamo.nll_loss_row_gradient.default)
def nll_loss_row_gradient(
    grad: Array,
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: Array,
) -> Array:
    """The gradient at the target of each row; the class axis has size 1."""
    total = dtypes.accumulation(grad.dtype)
    ignored, weights, _ = _targets(grad.dtype, target, weight, ignore_index)
    grad = grad.astype(total)
    if reduction == MEAN:
        grad = grad / total_weight.astype(total)
    return jnp.expand_dims(jnp.where(ignored, 0, -grad * weights), min(target.ndim, 1))


@lower(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(
    grad: Array, x: Array, target: Array, reduction: int, beta: float
) -> Array:
    """NaN where the difference is: the sign of PyTorch's decomposition would be 0 there."""

    def gradient(grad: Array, x: Array, target: Array) -> Array:
        difference = x - target
        share = grad / difference.size if reduction == MEAN else grad
        slope = jnp.where(difference >= beta, 1, difference / beta)
        return share * jnp.where(difference <= -beta, -1, slope)

    return compute(gradient, grad, x, target)


@lower(aten.multi_margin_loss_backward.default)
def multi_margin_loss_backward(
    grad: Array,
    x: Array,
    target: Array,
    p: float,
    margin: float,
    weight: Array | None = None,
    reduction: int = MEAN,
) -> Array:
    rows, grad = _rows(x), jnp.atleast_1d(grad)
    place = target.reshape(-1, 1)
    hit = lax.broadcasted_iota(place.dtype, rows.shape, 1) == place
    slack = margin - jnp.take_along_axis(rows, place, 1) + rows
    slope = jnp.where((slack > 0) & ~hit, 1 if p == 1 else 2 * slack, 0) / rows.shape[1]
    if weight is not None:
        slope = slope * weight[place]
    slope = jnp.where(hit, -jnp.sum(slope, 1, keepdims=True), slope)
    return (slope * _share(grad, rows, reduction)).reshape(x.shape)


@lower(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_loss_backward(
    grad: Array, x: Array, target: Array, reduction: int, is_target: Array
) -> Array:
    """The targets of a row end at the first negative one."""
    rows, grad = _rows(x), jnp.atleast_1d(grad)
    targets, is_target = target.reshape(rows.shape), is_target.reshape(rows.shape)
    valid = jnp.cumprod(targets >= 0, axis=1, dtype=jnp.int32) > 0
    place = jnp.where(valid, targets, 0)
    slack = 1 - jnp.take_along_axis(rows, place, 1)[:, :, None] + rows[:, None, :]
    pairs = (slack > 0) & valid[:, :, None] & (is_target == 0)[:, None, :]
    pulled, pushed = jnp.sum(pairs, 2, dtype=rows.dtype), jnp.sum(pairs, 1, dtype=rows.dtype)
    numbers = jnp.arange(rows.shape[0])[:, None]
    slope = pushed.at[numbers, place].add(-pulled, mode="promise_in_bounds") / rows.shape[1]
    return (slope * _share(grad, rows, reduction)).reshape(x.shape)


def _targets(
    dtype: Any, target: Array, weight: Array | None, ignore_index: int
) -> tuple[Array, Array, Array]:
    """Which targets are ignored, the weight of each (0 if ignored), and their class indices."""
    total = dtypes.accumulation(dtype)
    ignored = target == ignore_index
    place = jnp.where(ignored, 0, target).astype(jnp.int32)
    weights = jnp.ones((), total) if weight is None else weight.astype(total)[place]
    weights = jnp.where(ignored, 0, weights)
    return ignored, weights, jnp.expand_dims(place, min(target.ndim, 1))


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1] if x.ndim else 1)


def _share(grad: Array, rows: Array, reduction: int) -> Array:
    """The gradient of each row's loss."""
    grad = grad[:, None]
    return grad / rows.shape[0] if reduction == MEAN else grad
