"""Positions in sorted boundaries: searchsorted, bucketize, histc.

With few boundaries, every value is compared with all of them, which XLA fuses into a sum; many are
searched by bisection (a loop of log2 steps).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from xla_dynamo.backend.lowering.registry import lower

from ._promotion import promote

aten = torch.ops.aten

_FEW = 32


@lower(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(
    boundaries: Array,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    boundaries, values = promote(boundaries, values)
    if boundaries.size == 0 or values.size == 0:
        return jnp.zeros(values.shape, np.int64)
    if sorter is not None:
        boundaries = jnp.take_along_axis(boundaries, sorter, -1, mode="promise_in_bounds")
    side = side or ("right" if right else "left")
    method = "compare_all" if boundaries.shape[-1] <= _FEW else "scan"

    def search(boundaries: Array, values: Array) -> Array:
        return jnp.searchsorted(boundaries, values, side=side, method=method)

    if boundaries.ndim == 1:
        result = search(boundaries, values)
    else:
        shape = values.shape
        rows = boundaries.reshape(-1, boundaries.shape[-1])
        result = jax.vmap(search)(rows, values.reshape(rows.shape[0], shape[-1])).reshape(shape)
    return result.astype(np.int32 if out_int32 else np.int64)


@lower(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(
    values: Any, boundaries: Array, *, out_int32: bool = False, right: bool = False
) -> Array:
    return searchsorted(boundaries, values, out_int32=out_int32, right=right)


@lower(aten.histc.default)
def histc(x: Array, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    """Counts in equal bins from min to max, both included; other values are not counted."""
    if x.size == 0:
        return jnp.zeros(bins, x.dtype)
    # 16-bit floats are binned in float32; in 16 bits, as in eager, values cross bin edges.
    values = x.reshape(-1).astype(jnp.promote_types(x.dtype, np.float32))
    low, high = jnp.asarray(min, values.dtype), jnp.asarray(max, values.dtype)
    if min == max:
        low, high = jnp.min(values), jnp.max(values)
        flat = low == high
        low, high = jnp.where(flat, low - 1, low), jnp.where(flat, high + 1, high)
    inside = (values >= low) & (values <= high)
    place = ((values - low) * bins / (high - low)).astype(np.int32)
    place = jnp.where(inside, jnp.minimum(place, bins - 1), bins)
    counts = jnp.zeros(bins, np.int32).at[place].add(1, mode="drop")
    return counts.astype(x.dtype)
