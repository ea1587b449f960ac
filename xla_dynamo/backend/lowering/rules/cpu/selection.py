"""The k largest or smallest elements on the CPU, without sorting.

XLA:CPU has a kernel for the largest of float32. It sorts everything else, which takes a hundred
times as long: a few elements of wider dtypes are found by passes over all of them instead.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .. import _selection
from .._promotion import is_inexact
from .._selection import ordered, taken

# A pass takes 2.5 ns for an element, sorting 250 to 300 (rows of 8,192 elements).
_MOST_PASSES = 32


@_selection.top_wide.on("cpu")
def top_wide(x: Array, k: int, largest: bool) -> tuple[Array, Array]:
    if x.dtype == np.float32 and largest and x.size:
        return _if_any_nan(x, k)
    if x.dtype != np.float32 and 0 < k <= _MOST_PASSES and x.size:
        order = _by_passes(ordered(x, largest), k)
        return taken(x, order), order
    return _selection.top_wide.plain(x, k, largest)


def _if_any_nan(x: Array, k: int) -> Any:
    """Looking for NaNs is cheaper than writing a copy of `x` in which they have no sign."""
    return lax.cond(
        jnp.isnan(jnp.max(x)),
        lambda x: lax.top_k(ordered(x, True), k),
        lambda x: lax.top_k(x, k),
        x,
    )


def _by_passes(keys: Array, k: int) -> Array:
    """The positions. Each pass finds the next largest, the first of equal ones that are left."""
    bits = _integers(keys)
    last = bits.ndim - 1
    count, lowest = bits.shape[last], np.iinfo(bits.dtype).min
    places = lax.broadcasted_iota(np.int32, bits.shape, last)

    def larger(one: Any, other: Any) -> Any:
        (a, i), (b, j) = one, other
        first = (a > b) | ((a == b) & (i < j))
        return jnp.where(first, a, b), jnp.where(first, i, j)

    def step(n: Array, state: Any) -> Any:
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


def _integers(x: Array) -> Array:
    """Integers in the order of the floats `x`; a NaN is beyond the infinity of its sign."""
    if not is_inexact(x.dtype):
        return x
    integer = np.dtype(f"int{x.dtype.itemsize * 8}")
    bits = lax.bitcast_convert_type(x, integer)
    return jnp.where(bits < 0, bits ^ np.iinfo(integer).max, bits)
