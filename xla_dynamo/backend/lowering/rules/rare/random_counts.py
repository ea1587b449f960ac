"""Poisson, binomial, gamma and Dirichlet draws by jax.random's rejection loops.

Each element repeats its draw until it is accepted, all elements together in one while loop, so the
program does not grow with the tensor. A parameter outside the distribution's domain gives NaN (or
-1 for a Poisson rate) where eager raises.
"""

from __future__ import annotations

import jax
import torch
from jax import Array, lax
from jax import numpy as jnp

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import lower, lower_random

aten = torch.ops.aten


def _typed(key: Array) -> Array:
    return jax.random.wrap_key_data(key, impl="threefry2x32")


@lower_random(aten.poisson.default)
def poisson(key: Array, rate: Array, _: None = None) -> Array:
    wide = rate.astype(dtypes.accumulation(rate.dtype))
    return jax.random.poisson(_typed(key), wide, dtype=jnp.int64).astype(rate.dtype)


@lower_random(aten.binomial.default)
def binomial(key: Array, count: Array, prob: Array, _: None = None) -> Array:
    wide = dtypes.accumulation(count.dtype)
    return jax.random.binomial(_typed(key), count.astype(wide), prob.astype(wide), dtype=wide)


@lower_random(aten._standard_gamma.default)
def standard_gamma(key: Array, shape: Array, _: None = None) -> Array:
    wide = dtypes.accumulation(shape.dtype)
    drawn = jax.random.gamma(_typed(key), shape.astype(wide), dtype=wide)
    # As in eager, never 0, whose logarithm is infinite.
    return jnp.maximum(drawn.astype(shape.dtype), jnp.finfo(shape.dtype).tiny)


@lower_random(aten._sample_dirichlet.default)
def sample_dirichlet(key: Array, concentration: Array, _: None = None) -> Array:
    wide = dtypes.accumulation(concentration.dtype)
    return jax.random.dirichlet(_typed(key), concentration.astype(wide), dtype=wide)


@lower(aten._standard_gamma_grad.default)
def standard_gamma_grad(shape: Array, sample: Array) -> Array:
    return lax.random_gamma_grad(shape, sample)  # pyright: ignore[reportCallIssue]
