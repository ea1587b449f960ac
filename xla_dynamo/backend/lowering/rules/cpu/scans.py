"""Running log-sum-exps and extremes on the CPU, from column to column.

XLA:CPU's prefix primitives combine windows of sixteen, element by element. Where that costs more
than a sum, a scan of one column after the other (for few rows an associative scan) is 2 (maxima) to
50 times (log-sum-exps) faster.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .. import scans
from .._promotion import is_inexact, weakest

# From as many rows on, steps from column to column beat log(columns) passes over all of them.
_MANY_ROWS = 8

Pair = tuple[Array, Array]


@scans.prefixes.on("cpu")
def prefixes(
    combine: Callable[..., Array],
    primitive: Callable[..., Array],
    identity: float,
    values: Array,
    axis: int,
) -> Array:
    if not _has_many_rows(values, axis):
        return lax.associative_scan(combine, values, axis=axis)

    def step(total: Array, value: Array) -> Pair:
        total = combine(total, value)
        return total, total

    columns = jnp.moveaxis(values, axis, 0)
    start = jnp.broadcast_to(np.asarray(identity, values.dtype), columns.shape[1:])
    return jnp.moveaxis(lax.scan(step, start, columns)[1], 0, axis)


@scans.extremes.on("cpu")
def extremes(largest: bool, over: int, source: Array) -> Pair:
    """One scan, of the values with their positions."""
    if not _has_many_rows(source, over):
        return scans.extremes.plain(largest, over, source)

    def step(best: Pair, column: Pair) -> tuple[Pair, Pair]:
        wins = column[0] >= best[0] if largest else column[0] <= best[0]
        if is_inexact(source.dtype):
            wins |= jnp.isnan(column[0])
        best = jnp.where(wins, column[0], best[0]), jnp.where(wins, column[1], best[1])
        return best, best

    columns = jnp.moveaxis(source, over, 0)
    places = lax.iota(scans.place_dtype(source, over), len(columns))
    start = jnp.full_like(columns, weakest(source.dtype, largest=largest), shape=columns.shape[1:])
    _, found = lax.scan(step, (start, jnp.zeros(start.shape, places.dtype)), (columns, places))
    values, indices = (jnp.moveaxis(array, 0, over) for array in found)
    return values, indices


def _has_many_rows(values: Array, axis: int) -> bool:
    return values.size // max(values.shape[axis], 1) >= _MANY_ROWS
