"""Batch normalization and its gradients -> per-channel sums and one elementwise pass.

Statistics are float32 for the 16-bit floats. Training with running statistics on images sums the
distances to the running mean and their squares together: accelerators fuse both sums into the
convolution before them, where a variance about the true mean reads its output again (a quarter more
bytes on a TPU). The distance keeps it accurate: it loses digits only where the batch's mean lies
many deviations from the running mean. That happens in tables of raw numbers, rarely in images, so
inputs of rank 2 and 3, those without running statistics, and CPUs (where it gains little) take the
variance about the batch's own mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import PerPlatform, Unsupported, lower

from . import _numerics

aten = torch.ops.aten

Outputs = tuple[Array | None, ...]


@lower(aten._native_batch_norm_legit_functional.default)
def batch_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Outputs:
    """The output, what is saved for its gradient, and the running statistics (updated).

    Where running statistics normalize, torch leaves the saved ones empty.
    """
    if not training:
        if running_mean is None or running_var is None:
            raise Unsupported("Its mean or its variance is missing.", "Pass both, or train.")
        total = dtypes.accumulation(x.dtype)
        mean, var = running_mean.astype(total), running_var.astype(total)
        out, *_ = _normalize(x, weight, bias, mean, var, eps)
        return out, _nothing(total), _nothing(total), running_mean, running_var
    mean, var = _statistics(x, running_mean if x.ndim > 3 else None)
    results = _normalize(x, weight, bias, mean, var, eps)
    if running_mean is None or running_var is None:
        return *results, None, None
    count = np.float64(x.size // max(x.shape[1], 1))
    with np.errstate(divide="ignore"):
        unbiased = var * float(count / (count - 1))
    return (
        *results,
        (1 - momentum) * running_mean + momentum * mean,
        (1 - momentum) * running_var + momentum * unbiased,
    )


@lower(aten._batch_norm_with_update_functional.default)
def batch_norm_with_update(*args: Any) -> Outputs:
    x, weight, bias, mean, var, momentum, eps = args
    out = batch_norm(x, weight, bias, mean, var, True, momentum, eps)
    return *out[:3], _nothing(np.uint8), *out[3:]


@lower(aten._native_batch_norm_legit_no_training.default)
def batch_norm_without_training(*args: Any) -> Outputs:
    x, weight, bias, mean, var, momentum, eps = args
    return batch_norm(x, weight, bias, mean, var, False, momentum, eps)[:3]


@lower(aten._batch_norm_no_update.default)
def batch_norm_without_update(*args: Any) -> Outputs:
    return *batch_norm_without_training(*args), _nothing(np.uint8)


@lower(aten._native_batch_norm_legit.no_stats)
def batch_norm_without_statistics(
    x: Array, weight: Array | None, bias: Array | None, *settings: Any
) -> Outputs:
    return batch_norm(x, weight, bias, None, None, *settings)[:3]


@lower(aten.native_batch_norm.default)
def native_batch_norm(*args: Any) -> Outputs:
    *_, running_mean, _, training, _, _ = args
    if training and running_mean is not None:
        raise Unsupported(
            "In training it updates its running statistics in place, which no op of XLA does.",
            "Call torch.nn.functional.batch_norm.",
        )
    return batch_norm(*args)[:3]


@lower(aten.native_batch_norm_backward.default)
def native_batch_norm_backward(
    grad: Array,
    x: Array,
    weight: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_invstd: Array | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Outputs:
    """One pass for both sums, one for the input's gradient."""
    total, out_dtype = dtypes.accumulation(x.dtype), x.dtype
    axes = _reduced(x)
    grad, x = grad.astype(total), x.astype(total)
    if train:
        mean, invstd = save_mean, save_invstd
    else:
        mean, invstd = running_mean, None
        if running_var is not None:
            invstd = _inverse_deviation(running_var.astype(total), eps)
    if mean is None or invstd is None:
        raise Unsupported("Its mean or its variance is missing.", "Pass both, or train.")
    mean, invstd = mean.astype(total), invstd.astype(total)
    centered = x - _spread(mean, x)
    sum_grad = jnp.sum(grad, axes)
    along = jnp.sum(grad * centered, axes)
    scale = invstd if weight is None else invstd * weight
    grad_x = grad
    if train:
        count = max(x.size // max(x.shape[1], 1), 1)
        slope = along * invstd * invstd / count
        grad_x = grad - _spread(sum_grad / count, x) - centered * _spread(slope, x)
    grad_x = (grad_x * _spread(scale, x)).astype(out_dtype)
    grads = (grad_x, along * invstd, sum_grad)
    return tuple(g if wanted else None for g, wanted in zip(grads, output_mask, strict=True))


@lower(aten.batch_norm_backward.default)
def batch_norm_backward(*args: Any) -> Outputs:
    """What torch calls `save_var` here is the inverse deviation too; `reserve` holds nothing."""
    *operands, _reserve = args
    return native_batch_norm_backward(*operands)


def _statistics(x: Array, near: Array | None) -> tuple[Array, Array]:
    """Mean and biased variance of each channel; in one pass if some `near` mean is known."""
    x = x.astype(dtypes.accumulation(x.dtype))
    return about_mean(x) if near is None else about_running_mean(x, near.astype(x.dtype))


def about_mean(x: Array) -> tuple[Array, Array]:
    mean = _numerics.mean(x, _reduced(x))
    return mean, _numerics.mean(jnp.square(x - _spread(mean, x)), _reduced(x))


@PerPlatform
def about_running_mean(x: Array, near: Array) -> tuple[Array, Array]:
    distance = x - _spread(near, x)
    shift, square = (_numerics.mean(a, _reduced(x)) for a in (distance, jnp.square(distance)))
    return near + shift, jnp.maximum(square - jnp.square(shift), 0)


def _normalize(
    x: Array, weight: Array | None, bias: Array | None, mean: Array, var: Array, eps: float
) -> Outputs:
    invstd = _inverse_deviation(var, eps)
    scale = invstd if weight is None else invstd * weight
    out = (x.astype(mean.dtype) - _spread(mean, x)) * _spread(scale, x)
    if bias is not None:
        out = out + _spread(bias, x)
    return out.astype(x.dtype), mean, invstd


def _inverse_deviation(var: Array, eps: float) -> Array:
    inverse = lax.rsqrt(var + eps)
    return inverse if eps else jnp.where(var == 0, 0, inverse)


def _reduced(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _spread(channels: Array, x: Array) -> Array:
    return channels.reshape(-1, *[1] * (x.ndim - 2))


def _nothing(dtype: Any) -> Array:
    return jnp.zeros((0,), dtype)
