"""Cumulative sums, products, maxima and log-sum-exps along a dim.

XLA's prefix primitives, logarithmic in depth; nothing is unrolled. On CPUs those combine windows of
sixteen, element by element: where that costs more than a sum, a scan of one column after the other
(of few rows: an associative one) is 2 (maxima) to 50 times (log-sum-exps) faster. Integers sum in
int64, 16-bit floats in float32. Positions of running maxima are a second running maximum, over the
positions at which the value was reached (on CPUs they go along in one scan): the latest of equal
values and of NaNs, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from xla_dynamo.backend.lowering.dtypes import accumulation, to_numpy
from xla_dynamo.backend.lowering.registry import lower

from ._dims import at_least_1d, axis
from ._promotion import cast, floating, is_complex, is_inexact, plus_zero

aten = torch.ops.aten

# From as many rows on, steps from column to column beat log(columns) passes over all of them.
_MANY_ROWS = 8

Pair = tuple[jax.Array, jax.Array]


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
    return _scan(_one_is_plus_zero(lax.cumsum), x, dim, dtype)


@lower(torch.ops.xla_dynamo.reverse_cumsum.default)
def cumsum_from_end(x: jax.Array, dim: int) -> jax.Array:
    return _scan(_one_is_plus_zero(partial(lax.cumsum, reverse=True)), x, dim, None)


def _one_is_plus_zero(sums: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """`sums`, which eager begins with 0; XLA hands on what is alone along `axis`, also -0.0."""

    def run(x: jax.Array, *, axis: int) -> jax.Array:
        return plus_zero(x) if x.shape[axis] == 1 else sums(x, axis=axis)

    return run


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
    over = axis(dim, x.ndim)
    if values.shape[over] == 1:
        return plus_zero(x)
    out = _prefixes(jnp.logaddexp, lax.cumlogsumexp, -np.inf, values, over)
    return out.reshape(x.shape).astype(x.dtype)


def _prefixes(
    combine: Callable[..., jax.Array],
    primitive: Callable[..., jax.Array],
    identity: float,
    values: jax.Array,
    axis: int,
) -> jax.Array:
    """The prefixes of `values` under `combine`, of which XLA has a `primitive` as well."""
    rows = values.size // max(values.shape[axis], 1)
    by_steps = partial(_by_steps, combine, np.asarray(identity, values.dtype), axis)
    by_pairs = partial(lax.associative_scan, combine, axis=axis)
    return lax.platform_dependent(
        values,
        cpu=by_steps if rows >= _MANY_ROWS else by_pairs,
        default=partial(primitive, axis=axis),
    )


def _by_steps(
    combine: Callable[..., jax.Array], identity: np.ndarray, axis: int, values: jax.Array
) -> jax.Array:
    def step(total: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = combine(total, value)
        return total, total

    columns = jnp.moveaxis(values, axis, 0)
    _, prefixes = lax.scan(step, jnp.broadcast_to(identity, columns.shape[1:]), columns)
    return jnp.moveaxis(prefixes, 0, axis)


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
    return _running(x, dim, largest=True)


@lower(aten.cummin.default)
def cummin(x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
    return _running(x, dim, largest=False)


def _running(x: jax.Array, dim: int, *, largest: bool) -> tuple[jax.Array, jax.Array]:
    source, over = at_least_1d(x), axis(dim, x.ndim)
    if source.dtype == np.bool_:
        source = source.astype(np.int8)
    by_prefixes = partial(_extremes_by_prefixes, largest, over)
    if source.size // max(source.shape[over], 1) < _MANY_ROWS:
        values, indices = by_prefixes(source)
    else:
        by_steps = partial(_extremes_by_steps, largest, over)
        values, indices = lax.platform_dependent(source, cpu=by_steps, default=by_prefixes)
    return values.reshape(x.shape).astype(x.dtype), indices.reshape(x.shape)


def _extremes_by_prefixes(
    largest: bool, over: int, source: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Two scans: of the values, and of the positions at which they were reached."""
    combine, primitive = (jnp.maximum, lax.cummax) if largest else (jnp.minimum, lax.cummin)
    values = _prefixes(combine, primitive, _last(source.dtype, largest), source, over)
    reached = source == values
    if is_inexact(source.dtype):
        reached |= jnp.isnan(source)
    places = lax.broadcasted_iota(_place_dtype(source, over), source.shape, over)
    reached_at = jnp.where(reached, places, 0)
    return values, _prefixes(jnp.maximum, lax.cummax, 0, reached_at, over)


def _extremes_by_steps(largest: bool, over: int, source: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One scan, of the values with their positions."""

    def step(best: Pair, column: Pair) -> tuple[Pair, Pair]:
        wins = column[0] >= best[0] if largest else column[0] <= best[0]
        if is_inexact(source.dtype):
            wins |= jnp.isnan(column[0])
        best = jnp.where(wins, column[0], best[0]), jnp.where(wins, column[1], best[1])
        return best, best

    columns = jnp.moveaxis(source, over, 0)
    places = lax.iota(_place_dtype(source, over), len(columns))
    start = jnp.full_like(columns, _last(source.dtype, largest), shape=columns.shape[1:])
    _, found = lax.scan(step, (start, jnp.zeros(start.shape, places.dtype)), (columns, places))
    values, indices = (jnp.moveaxis(array, 0, over) for array in found)
    return values, indices


def _place_dtype(source: jax.Array, over: int) -> np.dtype:
    return np.dtype(np.int32 if source.shape[over] < 2**31 else np.int64)


def _last(dtype: np.dtype, largest: bool) -> float:
    """What every other number of the type wins against, as maximum or minimum."""
    if is_inexact(dtype):
        return -np.inf if largest else np.inf
    return np.iinfo(dtype).min if largest else np.iinfo(dtype).max
