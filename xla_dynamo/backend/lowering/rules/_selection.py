"""The k largest or smallest elements of the last axis, and where they are; NaN is the largest.

XLA:CPU has a kernel of top_k for float32; all else it sorts, which takes a hundred times as long.
What is narrower is exact in float32, and few elements of what is wider are found by passes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ._promotion import is_inexact
from .arg_reductions import argmax

# A pass takes 2.5 ns for an element, sorting 250 to 300 (rows of 8,192 elements).
_MOST_PASSES = 32


def top(x: jax.Array, k: int, largest: bool) -> tuple[jax.Array, jax.Array]:
    if k == 1 and largest:
        order = argmax(x, -1, keepdim=True)
        return _taken(x, order), order
    if x.dtype.itemsize < 4:
        values, order = top(x.astype(np.float32), k, largest)
        return values.astype(x.dtype), order
    if x.dtype != np.float32 and 0 < k <= _MOST_PASSES and x.size:
        order = lax.platform_dependent(
            _ordered(x, largest),
            cpu=lambda keys: _by_passes(keys, k),
            default=lambda keys: lax.top_k(keys, k)[1],
        )
        return _taken(x, order), order
    if x.dtype == np.float32 and largest and x.size:
        values, order = lax.platform_dependent(
            x,
            cpu=lambda x: _if_any_nan(x, k),
            default=lambda x: lax.top_k(_ordered(x, True), k),
        )
        return values, order
    values, order = lax.top_k(_ordered(x, largest), k)
    return _ordered(values, largest), order


def _taken(x: jax.Array, order: jax.Array) -> jax.Array:
    return jnp.take_along_axis(x, order, axis=-1, mode="promise_in_bounds")


def _ordered(x: jax.Array, largest: bool) -> jax.Array:
    """Keys whose largest are wanted; the keys of keys are the elements again.

    lax.top_k takes a NaN for largest if its sign bit is clear, and for smallest if it is set.
    """
    if not is_inexact(x.dtype):
        return x if largest else ~x
    x = jnp.where(jnp.isnan(x), jnp.full_like(x, jnp.nan), x)
    return x if largest else -x


def _if_any_nan(x: jax.Array, k: int) -> Any:
    """To look for NaNs is cheaper than to write a copy of `x` without their signs."""
    return lax.cond(
        jnp.isnan(jnp.max(x)),
        lambda x: lax.top_k(_ordered(x, True), k),
        lambda x: lax.top_k(x, k),
        x,
    )


def _by_passes(keys: jax.Array, k: int) -> jax.Array:
    """Positions: each pass finds the next largest, of equal ones the first that is left."""
    bits = _integers(keys)
    last = bits.ndim - 1
    count, lowest = bits.shape[last], np.iinfo(bits.dtype).min
    places = lax.broadcasted_iota(np.int32, bits.shape, last)

    def larger(one: Any, other: Any) -> Any:
        (a, i), (b, j) = one, other
        first = (a > b) | ((a == b) & (i < j))
        return jnp.where(first, a, b), jnp.where(first, i, j)

    def step(n: jax.Array, state: Any) -> Any:
        bound, place, order = state
        left = (bits < bound) | ((bits == bound) & (places > place))
        operands = jnp.where(left, bits, lowest), jnp.where(left, places, count)
        found = lax.reduce(operands, (bits.dtype.type(lowest), np.int32(count)), larger, (last,))
        bound, place = (jnp.expand_dims(part, last) for part in found)
        return bound, place, lax.dynamic_update_slice_in_dim(order, place, n, last)

    rows = bits.shape[:last]
    before = (
        jnp.full((*rows, 1), np.iinfo(bits.dtype).max, bits.dtype),
        jnp.full((*rows, 1), -1, np.int32),
        jnp.zeros((*rows, k), np.int32),
    )
    return lax.fori_loop(0, k, step, before)[-1]


def _integers(x: jax.Array) -> jax.Array:
    """In the same order; a NaN is beyond the infinity of its sign."""
    if not is_inexact(x.dtype):
        return x
    integer = np.dtype(f"int{x.dtype.itemsize * 8}")
    bits = lax.bitcast_convert_type(x, integer)
    return jnp.where(bits < 0, bits ^ np.iinfo(integer).max, bits)
