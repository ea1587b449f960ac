"""Dropout, Bernoulli draws and rrelu: one comparison of random bits with a threshold.

A probability given as a number becomes a 32-bit threshold, exact to 2**-33; a tensor of
probabilities becomes a tensor of thresholds.
"""

from __future__ import annotations

import numpy as np
import torch
from jax import Array
from jax import numpy as jnp

from xla_dynamo.backend.lowering.dtypes import accumulation
from xla_dynamo.backend.lowering.registry import PerPlatform, lower_random

from . import random_bits

aten = torch.ops.aten


@lower_random(aten.native_dropout.default)
def native_dropout(key: Array, x: Array, p: float, train: bool | None) -> tuple[Array, Array]:
    if train is False:
        return x, jnp.ones(x.shape, jnp.bool_)
    keep = 1.0 - p
    mask = _chance(key, x.shape, keep)
    wide = accumulation(x.dtype)
    # A product, not a select of x: a dropped NaN stays NaN, as in eager.
    factor = jnp.where(mask, wide.type(1 / keep if keep else 0), wide.type(0))
    return (x.astype(wide) * factor).astype(x.dtype), mask


@lower_random(aten.bernoulli.p)
def bernoulli_p(key: Array, x: Array, p: float = 0.5) -> Array:
    return _chance(key, x.shape, p).astype(x.dtype)


@lower_random(aten.bernoulli.default, aten.bernoulli.Tensor)
def bernoulli(key: Array, x: Array, p: Array | None = None) -> Array:
    return _chances(key, x if p is None else jnp.broadcast_to(p, x.shape)).astype(x.dtype)


@lower_random(aten.rrelu_with_noise_functional.default)
def rrelu_with_noise_functional(
    key: Array,
    x: Array,
    noise: Array,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    _: None = None,
) -> tuple[Array, Array]:
    if not training:
        slope = x.dtype.type((lower + upper) / 2)
        return jnp.where(x <= 0, x * slope, x), noise
    drawn = random_bits.uniform(key, x.shape, x.dtype).astype(accumulation(x.dtype))
    slopes = (lower + (upper - lower) * drawn).astype(x.dtype)
    return jnp.where(x <= 0, x * slopes, x), jnp.where(x <= 0, slopes, x.dtype.type(1))


def _chance(key: Array, shape: tuple[int, ...], p: float) -> Array:
    threshold = round(p * 2**32)
    if threshold >= 2**32:
        return jnp.ones(shape, jnp.bool_)
    return below(key, shape, np.uint32(threshold))


@PerPlatform
def below(key: Array, shape: tuple[int, ...], threshold: np.uint32) -> Array:
    """Which elements' random bits are less."""
    return random_bits.bits(key, shape) < threshold


def _chances(key: Array, p: Array) -> Array:
    if p.dtype == np.float64:
        return random_bits.uniform(key, p.shape, p.dtype) < p
    p = p.astype(jnp.float32)
    threshold = (p * np.float32(2.0**32)).astype(jnp.uint32)
    return (random_bits.bits(key, p.shape) < threshold) | (p >= 1)
