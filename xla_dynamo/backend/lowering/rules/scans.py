"""Cumulative sums, products, maxima and log-sum-exps along a dim.

XLA's prefix primitives, logarithmic in depth; nothing is unrolled. Integers sum in int64, 16-bit
floats in float32. Positions of running maxima are a second running maximum, over the positions at
which the value was reached: the latest of equal values and of NaNs, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from ..dtypes import accumulation, to_numpy
from ..registry import lower
from ._dims import at_least_1d, axis
from ._promotion import cast, floating, is_complex, is_inexact

aten = torch.ops.aten


def _scan(
    function: Callable[..., jax.Array], x: jax.Array, dim: int, dtype: torch.dtype | None
) -> jax.Array:
    result = to_numpy(dtype) if dtype else x.dtype
    if dtype is None and not is_inexact(x.dtype):
        result = np.dtype(np.int64)
    values = at_least_1d(cast(cast(x, result), accumulation(result)))
    if values.dtype == np.bool_:
        return function(values.astype(np.int32), axis=axis(dim, x.ndim)).reshape(x.shape) != 0
    return function(values, axis=axis(dim, x.ndim)).reshape(x.shape).astype(result)


@lower(aten.cumsum.default)
def cumsum(x: jax.Array, dim: int, *, dtype: torch.dtype | None = None) -> jax.Array:
    return _scan(lax.cumsum, x, dim, dtype)


@lower(aten.cumprod.default)
def cumprod(x: jax.Array, dim: int, *, dtype: torch.dtype | None = None) -> jax.Array:
    return _scan(lax.cumprod, x, dim, dtype)


@lower(aten.logcumsumexp.default)
def logcumsumexp(x: jax.Array, dim: int) -> jax.Array:
    values = at_least_1d(x.astype(accumulation(floating(x.dtype))))
    if values.size == 0:
        return x
    if is_complex(x.dtype):
        return _complex_logcumsumexp(values, axis(dim, x.ndim)).reshape(x.shape)
    return lax.cumlogsumexp(values, axis=axis(dim, x.ndim)).reshape(x.shape).astype(x.dtype)


def _complex_logcumsumexp(x: jax.Array, dim: int) -> jax.Array:
    """One number after the other: the imaginary parts depend on the order, by multiples of 2 pi."""

    def step(total: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = _log_add_exp(value, total)
        return total, total

    values = jnp.moveaxis(x, dim, 0)
    start = jnp.full(values.shape[1:], -jnp.inf, x.dtype)
    return jnp.moveaxis(lax.scan(step, start, values)[1], 0, dim)


def _log_add_exp(x: jax.Array, y: jax.Array) -> jax.Array:
    """log(exp(x) + exp(y)) of complex numbers; of two -inf, `y`, whatever their phase."""
    below = x.real < y.real
    low, high = jnp.where(below, x, y), jnp.where(below, y, x)
    ratio = low - high
    # Where exp is 0 or infinite, the phase must not make it NaN.
    ratio = jnp.where(jnp.isfinite(ratio.real), ratio, ratio.real.astype(x.dtype))
    total = high + lax.log1p(lax.exp(ratio))
    infinite = jnp.isinf(low.real) & (low.real == high.real)
    of_infinite = jnp.where(low.real < 0, low, jnp.log(jnp.exp(x) + jnp.exp(y)))
    total = jnp.where(infinite, of_infinite, total)
    return jnp.where(jnp.isnan(x) | jnp.isnan(y), complex(jnp.nan, jnp.nan), total)


@lower(aten.cummax.default)
def cummax(x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
    return _running(lax.cummax, x, dim)


@lower(aten.cummin.default)
def cummin(x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
    return _running(lax.cummin, x, dim)


def _running(
    function: Callable[..., jax.Array], x: jax.Array, dim: int
) -> tuple[jax.Array, jax.Array]:
    source, over = at_least_1d(x), axis(dim, x.ndim)
    if source.dtype == np.bool_:
        source = source.astype(np.int8)
    values = function(source, axis=over)
    reached = source == values
    if is_inexact(x.dtype):
        reached |= jnp.isnan(source)
    dtype = np.int32 if source.shape[over] < 2**31 else np.int64
    places = lax.broadcasted_iota(dtype, source.shape, over)
    indices = lax.cummax(jnp.where(reached, places, 0), axis=over)
    return values.reshape(x.shape).astype(x.dtype), indices.reshape(x.shape)
