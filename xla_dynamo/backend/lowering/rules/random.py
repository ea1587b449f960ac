"""Uniform, normal and other continuous draws: transforms of counter-based uniforms.

Values are computed in float32 for the 16-bit floats, and never leave the support of their
distribution: `uniform` stays below its upper end after rounding, normals are finite, exponentials
and the arguments of logarithms are positive. random_bits.py describes the generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jax import Array, lax
from jax import numpy as jnp

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import Unsupported, lower_random

from . import random_bits

aten = torch.ops.aten

Draw = Callable[..., Array]


def factory(
    draw: Draw, key: Array, size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any
) -> Array:
    target = dtypes.to_numpy(dtype or torch.get_default_dtype())
    if target.kind == "c":
        real = np.dtype(np.float32 if target == np.complex64 else np.float64)
        parts = [draw(key, tuple(size), real, stream) for stream in (0, 1)]
        # The two parts of a complex standard normal have variance 1 together.
        scale = math.sqrt(0.5) if draw is random_bits.normal else 1.0
        return lax.complex(*(part * real.type(scale) for part in parts))
    if not jnp.issubdtype(target, jnp.floating):
        raise Unsupported(
            f"Random floats have a floating-point dtype, and {dtype} is none.",
            "Draw in a float dtype, and convert the result.",
        )
    return draw(key, tuple(size), target).astype(target)


def factory_like(
    draw: Draw, key: Array, x: Array, *, dtype: torch.dtype | None = None, **_: Any
) -> Array:
    return factory(draw, key, x.shape, dtype=dtype or dtypes.to_torch(x.dtype))


for _draw, _sized, _like in (
    (random_bits.uniform, aten.rand, aten.rand_like),
    (random_bits.normal, aten.randn, aten.randn_like),
):
    lower_random(_sized.default, _sized.generator)(partial(factory, _draw))
    lower_random(_like.default)(partial(factory_like, _draw))


@lower_random(aten.uniform.default)
def uniform(key: Array, x: Array, low: float = 0.0, high: float = 1.0) -> Array:
    drawn = factory_like(random_bits.uniform, key, x)
    if (low, high) == (0.0, 1.0):
        return drawn
    if x.dtype.kind == "c":
        return drawn * (high - low) + low * (1 + 1j)
    wide = dtypes.accumulation(x.dtype)
    scaled = drawn.astype(wide) * wide.type(high - low) + wide.type(low)
    end = jnp.asarray(high, x.dtype)
    below = lax.nextafter(end, jnp.asarray(low, x.dtype))
    return jnp.minimum(scaled.astype(x.dtype), below)


@lower_random(aten.normal_functional.default)
def normal_functional(key: Array, x: Array, mean: float = 0.0, std: float = 1.0) -> Array:
    if x.dtype.kind == "c":
        return normal_float_float(key, mean, std, x.shape, dtype=dtypes.to_torch(x.dtype))
    return random_bits.normal(key, x.shape, x.dtype) * std + mean


@lower_random(aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.Tensor_Tensor)
def normal(key: Array, mean: Array | float, std: Array | float = 1.0) -> Array:
    tensors = [operand for operand in (mean, std) if isinstance(operand, Array)]
    dtype = tensors[0].dtype
    if dtype.kind == "c":
        raise Unsupported(
            "Complex normal numbers are not covered with a tensor of means or deviations.",
            "Scale and shift the result of torch.randn.",
        )
    wide = dtypes.accumulation(dtype)
    shape = jnp.broadcast_shapes(*(tensor.shape for tensor in tensors))
    drawn = random_bits.normal(key, shape, dtype)
    return (jnp.asarray(mean, wide) + jnp.asarray(std, wide) * drawn).astype(dtype)


@lower_random(aten.normal.float_float)
def normal_float_float(
    key: Array,
    mean: float,
    std: float,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    **_: Any,
) -> Array:
    drawn = factory(random_bits.normal, key, size, dtype=dtype) * std
    # The real and the imaginary part have the same mean.
    return drawn + (mean * (1 + 1j) if drawn.dtype.kind == "c" else mean)


@lower_random(aten.log_normal.default)
def log_normal(key: Array, x: Array, mean: float = 1.0, std: float = 2.0) -> Array:
    return jnp.exp(random_bits.normal(key, x.shape, x.dtype) * std + mean)


@lower_random(aten.exponential.default)
def exponential(key: Array, x: Array, rate: float = 1.0) -> Array:
    return random_bits.exponential(key, x.shape, x.dtype) / rate


@lower_random(aten.cauchy.default)
def cauchy(key: Array, x: Array, median: float = 0.0, sigma: float = 1.0) -> Array:
    # The cotangent of an angle near 0 is accurate where the tangent of one near pi/2 is not.
    angle = random_bits.signed_uniform(key, x.shape, x.dtype) * (math.pi / 2)
    return median + sigma / jnp.tan(angle)


@lower_random(aten.geometric.default)
def geometric(key: Array, x: Array, p: float) -> Array:
    if p >= 1:
        return jnp.ones(x.shape, x.dtype)
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else np.dtype(np.float64)
    trials = jnp.ceil(random_bits.exponential(key, x.shape, dtype) / -math.log1p(-p))
    return jnp.maximum(trials, 1).astype(x.dtype)
