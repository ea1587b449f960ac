"""Layer and group normalization and their gradients -> row statistics and elementwise passes.

The variance is taken about the mean, as eager does: rows of a transformer can hold outliers that
the one-pass formula would drown in. Statistics are float32 for the 16-bit floats. Gradients
recompute the normalized input from the saved mean and inverse deviation.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import lower

from . import _numerics

aten = torch.ops.aten

Outputs = tuple[Array | None, ...]


@lower(aten.native_layer_norm.default)
def native_layer_norm(
    x: Array, normalized_shape: Sequence[int], weight: Array | None, bias: Array | None, eps: float
) -> Outputs:
    axes = tuple(range(-len(normalized_shape), 0))
    out, mean, rstd = _standardize(x.astype(dtypes.accumulation(x.dtype)), axes, eps)
    return _affine(out, weight, bias).astype(x.dtype), mean, rstd


@lower(aten.native_layer_norm_backward.default)
def native_layer_norm_backward(
    grad: Array,
    x: Array,
    normalized_shape: Sequence[int],
    mean: Array,
    rstd: Array,
    weight: Array | None,
    bias: Array | None,
    output_mask: Sequence[bool],
) -> Outputs:
    total, out_dtype = dtypes.accumulation(x.dtype), x.dtype
    rows = tuple(range(x.ndim - len(normalized_shape)))
    axes = tuple(range(len(rows), x.ndim))
    grad, x, mean, rstd = (a.astype(total) for a in (grad, x, mean, rstd))
    centered = x - mean
    scaled = grad if weight is None else grad * weight
    shift = _numerics.mean(scaled, axes, keepdims=True) * rstd
    slope = _numerics.mean(scaled * centered, axes, keepdims=True) * rstd * rstd * rstd
    grads = (
        (scaled * rstd - shift - centered * slope).astype(out_dtype),
        jnp.sum(grad * centered * rstd, rows),
        jnp.sum(grad, rows),
    )
    return _wanted(grads, output_mask)


@lower(aten.native_group_norm.default)
def native_group_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> Outputs:
    grouped = _by_group(x, group).astype(dtypes.accumulation(x.dtype))
    out, mean, rstd = _standardize(grouped, tuple(range(2, grouped.ndim)), eps)
    column = (-1, *[1] * (x.ndim - 2))
    weight, bias = (None if a is None else a.reshape(column) for a in (weight, bias))
    out = _affine(out.reshape(x.shape), weight, bias)
    return out.astype(x.dtype), mean.reshape(-1, group), rstd.reshape(-1, group)


@lower(aten.native_group_norm_backward.default)
def native_group_norm_backward(
    grad: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> Outputs:
    """Both sums are taken per channel once; groups and weights are sums of those."""
    total, out_dtype = dtypes.accumulation(x.dtype), x.dtype
    column = (-1, group, 1, *[1] * (x.ndim - 2))
    mean, rstd = (a.astype(total).reshape(column) for a in (mean, rstd))
    weights = jnp.ones((), total) if weight is None else weight.reshape(1, *column[1:2], -1)
    weights = weights.astype(total).reshape(*weights.shape, *[1] * (x.ndim - 2))
    grad, centered = _by_group(grad.astype(total), group), _by_group(x.astype(total), group) - mean
    spatial = tuple(range(3, grad.ndim))
    sums = jnp.sum(grad, spatial, keepdims=True)
    along = jnp.sum(grad * centered, spatial, keepdims=True)
    count = max(grad[0, 0].size, 1) if grad.size else 1
    shift = jnp.sum(sums * weights, 2, keepdims=True) / count * rstd
    slope = jnp.sum(along * weights, 2, keepdims=True) / count * rstd * rstd * rstd
    grad_x = grad * (weights * rstd) - shift - centered * slope
    grads = (
        grad_x.reshape(x.shape).astype(out_dtype),
        jnp.sum(along * rstd, 0).reshape(-1),
        jnp.sum(sums, 0).reshape(-1),
    )
    return _wanted(grads, output_mask)


def _standardize(x: Array, axes: Sequence[int], eps: float) -> tuple[Array, Array, Array]:
    mean = _numerics.mean(x, axes, keepdims=True)
    centered = x - mean
    rstd = lax.rsqrt(_numerics.mean(jnp.square(centered), axes, keepdims=True) + eps)
    return centered * rstd, mean, rstd


def _affine(x: Array, weight: Array | None, bias: Array | None) -> Array:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _by_group(x: Array, group: int) -> Array:
    """(batch, channels, ...) as (batch, groups, channels of one, ...)."""
    return x.reshape(x.shape[0], group, x.shape[1] // group, *x.shape[2:])


def _wanted(grads: Outputs, output_mask: Sequence[bool]) -> Outputs:
    return tuple(g if wanted else None for g, wanted in zip(grads, output_mask, strict=True))
