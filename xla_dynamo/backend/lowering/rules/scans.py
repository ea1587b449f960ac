"""Cumulative sums, products, maxima and log-sum-exps along a dim.

XLA's prefix primitives, logarithmic in depth; nothing is unrolled. Integers sum in int64, 16-bit
floats in float32. Positions of running maxima are a second running maximum, over the positions at
which the value was reached: the latest of equal values and of NaNs, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.dtypes import accumulation, to_numpy
from xla_dynamo.backend.lowering.registry import PerPlatform, lower

from ._dims import at_least_1d, axis
from ._numerics import begun_with_zero, plus_zero
from ._promotion import cast, floating, is_complex, is_inexact, weakest

aten = torch.ops.aten


def _scan(
    function: Callable[..., Array], x: Array, dim: int, *, dtype: torch.dtype | None = None
) -> Array:
    result = to_numpy(dtype) if dtype else x.dtype
    if dtype is None and not is_inexact(x.dtype):
        result = np.dtype(np.int64)
    values = at_least_1d(cast(cast(x, result), accumulation(result)))
    if values.dtype == np.bool_:
        return function(values.astype(np.int32), axis=axis(dim, x.ndim)).reshape(x.shape) != 0
    return function(values, axis=axis(dim, x.ndim)).reshape(x.shape).astype(result)


def _sums(x: Array, *, axis: int, reverse: bool = False) -> Array:
    sums = lax.cumsum(x, axis=axis, reverse=reverse)
    return begun_with_zero(sums, of_one=x.shape[axis] == 1)


lower(aten.cumsum.default)(partial(_scan, _sums))
lower(aten.cumprod.default)(partial(_scan, lax.cumprod))
lower(torch.ops.xla_dynamo.reverse_cumsum.default)(partial(_scan, partial(_sums, reverse=True)))


@lower(aten.logcumsumexp.default)
def logcumsumexp(x: Array, dim: int) -> Array:
    values = at_least_1d(x.astype(accumulation(floating(x.dtype))))
    if values.size == 0:
        return x
    if is_complex(x.dtype):
        return _complex_logcumsumexp(values, axis(dim, x.ndim)).reshape(x.shape)
    over = axis(dim, x.ndim)
    if values.shape[over] == 1:
        return plus_zero(x)
    out = prefixes(jnp.logaddexp, lax.cumlogsumexp, -np.inf, values, over)
    return out.reshape(x.shape).astype(x.dtype)


@PerPlatform
def prefixes(
    combine: Callable[..., Array],
    primitive: Callable[..., Array],
    identity: float,
    values: Array,
    axis: int,
) -> Array:
    """The prefixes of `values` under `combine`, for which JAX has a `primitive`."""
    return primitive(values, axis=axis)


def _complex_logcumsumexp(x: Array, dim: int) -> Array:
    """One number after the other: the imaginary parts depend on the order, by multiples of 2 pi."""

    def step(total: Array, value: Array) -> tuple[Array, Array]:
        total = _log_add_exp(value, total)
        return total, total

    values = jnp.moveaxis(x, dim, 0)
    start = jnp.full(values.shape[1:], -jnp.inf, x.dtype)
    return jnp.moveaxis(lax.scan(step, start, values)[1], 0, dim)


def _log_add_exp(x: Array, y: Array) -> Array:
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


def _running(largest: bool, x: Array, dim: int) -> tuple[Array, Array]:
    source, over = at_least_1d(x), axis(dim, x.ndim)
    if source.dtype == np.bool_:
        source = source.astype(np.int8)
    values, places = extremes(largest, over, source)
    return values.reshape(x.shape).astype(x.dtype), places.reshape(x.shape)


lower(aten.cummax.default)(partial(_running, True))
lower(aten.cummin.default)(partial(_running, False))


@PerPlatform
def extremes(largest: bool, over: int, source: Array) -> tuple[Array, Array]:
    """Running extremes, and where they were reached: two scans."""
    combine, primitive = (jnp.maximum, lax.cummax) if largest else (jnp.minimum, lax.cummin)
    values = prefixes(combine, primitive, weakest(source.dtype, largest=largest), source, over)
    reached = source == values
    if is_inexact(source.dtype):
        reached |= jnp.isnan(source)
    places = lax.broadcasted_iota(place_dtype(source, over), source.shape, over)
    reached_at = jnp.where(reached, places, 0)
    return values, prefixes(jnp.maximum, lax.cummax, 0, reached_at, over)


def place_dtype(source: Array, over: int) -> np.dtype:
    return np.dtype(np.int32 if source.shape[over] < 2**31 else np.int64)
