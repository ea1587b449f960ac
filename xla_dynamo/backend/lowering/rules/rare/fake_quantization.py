"""fake_quantize_*: floats rounded to a grid of integers, and a mask of those within its range.

The steps are eager's: multiply by the reciprocal of the scale, round half to even, add the zero
point and clamp; the result is a float32 product, whatever the dtype. NaN becomes the least integer.
"""

from __future__ import annotations

import jax.numpy as jnp
import torch
from jax import Array

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import lower

aten = torch.ops.aten


@lower(aten.fake_quantize_per_tensor_affine_cachemask.default)
def fake_quantize(
    x: Array, scale: float, zero_point: int, low: int, high: int
) -> tuple[Array, Array]:
    """The floats on the grid, and which of `x` are within [low, high] after rounding."""
    return _on_grid(x, jnp.float32(scale), jnp.int64(zero_point), low, high)


@lower(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def fake_quantize_where_enabled(
    x: Array, scale: Array, zero_point: Array, enabled: Array, low: int, high: int
) -> tuple[Array, Array]:
    """`scale`, `zero_point` and `enabled` have one element each."""
    values, mask = _on_grid(x, scale.reshape(()), zero_point.reshape(()), low, high)
    on = enabled.reshape(()) != 0
    return jnp.where(on, values, x), mask | ~on


@lower(aten.fake_quantize_per_channel_affine_cachemask.default)
def fake_quantize_per_channel(
    x: Array, scale: Array, zero_point: Array, axis: int, low: int, high: int
) -> tuple[Array, Array]:
    """`scale` and `zero_point` have an element for each index of `axis`."""
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return _on_grid(x, scale.reshape(shape), zero_point.reshape(shape), low, high)


def _on_grid(x: Array, scale: Array, zero_point: Array, low: int, high: int) -> tuple[Array, Array]:
    wide = x.astype(dtypes.accumulation(x.dtype))
    scaled = wide * (1 / scale).astype(wide.dtype)
    shift = zero_point.astype(wide.dtype)
    if jnp.issubdtype(zero_point.dtype, jnp.floating):
        grid = jnp.round(scaled + shift)
    else:
        grid = jnp.round(scaled) + shift
    inside = (grid >= low) & (grid <= high)
    clamped = jnp.clip(jnp.where(jnp.isnan(grid), low, grid), low, high)
    return ((clamped - shift).astype(jnp.float32) * scale).astype(x.dtype), inside
