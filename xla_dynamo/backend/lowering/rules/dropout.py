"""Dropout, Bernoulli draws and rrelu: one comparison of random bits with a threshold.

A probability given as a number becomes a 32-bit threshold, exact to 2**-33; a tensor of
probabilities becomes a tensor of thresholds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jax import Array
from jax import numpy as jnp

from xla_dynamo.backend.lowering.dtypes import accumulation
from xla_dynamo.backend.lowering.registry import Unsupported, lower_random

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
def bernoulli_p(key: Array, x: Array, p: float = 0.5, *, generator: Any = None) -> Array:
    refuse_generator(generator)
    return _chance(key, x.shape, p).astype(x.dtype)


@lower_random(aten.bernoulli.default)
def bernoulli(key: Array, x: Array, *, generator: Any = None) -> Array:
    refuse_generator(generator)
    return _chances(key, x).astype(x.dtype)


@lower_random(aten.bernoulli.Tensor)
def bernoulli_tensor(key: Array, x: Array, p: Array, *, generator: Any = None) -> Array:
    refuse_generator(generator)
    return _chances(key, jnp.broadcast_to(p, x.shape)).astype(x.dtype)


@lower_random(aten.rrelu_with_noise_functional.default)
def rrelu_with_noise_functional(
    key: Array,
    x: Array,
    noise: Array,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> tuple[Array, Array]:
    refuse_generator(generator)
    if not training:
        slope = x.dtype.type((lower + upper) / 2)
        return jnp.where(x <= 0, x * slope, x), noise
    drawn = random_bits.uniform(key, x.shape, x.dtype).astype(accumulation(x.dtype))
    slopes = (lower + (upper - lower) * drawn).astype(x.dtype)
    return jnp.where(x <= 0, x * slopes, x), jnp.where(x <= 0, slopes, x.dtype.type(1))


def refuse_generator(generator: Any) -> None:
    """Raise for a torch.Generator, whose state only eager can advance."""
    if generator is not None:
        raise Unsupported(
            "It draws from a torch.Generator, whose state only eager PyTorch can advance.",
            "Pass no generator: torch.manual_seed seeds what is compiled.",
        )


def _chance(key: Array, shape: tuple[int, ...], p: float) -> Array:
    threshold = round(p * 2**32)
    if threshold >= 2**32:
        return jnp.ones(shape, jnp.bool_)
    return random_bits.bits(key, shape) < np.uint32(threshold)


def _chances(key: Array, p: Array) -> Array:
    if p.dtype == np.float64:
        return random_bits.uniform(key, p.shape, p.dtype) < p
    p = p.astype(jnp.float32)
    threshold = (p * np.float32(2.0**32)).astype(jnp.uint32)
    return (random_bits.bits(key, p.shape) < threshold) | (p >= 1)
