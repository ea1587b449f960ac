"""Products of 64-bit integers on a TPU, whose compiler has no dot_general of them.

Each is a sum of products, which XLA fuses: nothing of size rows x keys x columns is in memory.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import matmul

_WIDE = (np.int64, np.uint64)


@matmul.matmul.on("tpu")
def matmul_of_integers(x: Array, y: Array) -> Array:
    if x.dtype not in _WIDE:
        return matmul.matmul.plain(x, y)
    rows, columns = x if x.ndim > 1 else x[None], y if y.ndim > 1 else y[:, None]
    total = _sum_of_products(rows, columns)
    total = total if x.ndim > 1 else total.squeeze(-2)
    return total if y.ndim > 1 else total.squeeze(-1)


@matmul.dot_general.on("tpu")
def dot_general_of_integers(first: Array, second: Array, numbers: Any, dtype: np.dtype) -> Array:
    if first.dtype not in _WIDE:
        return matmul.dot_general.plain(first, second, numbers, dtype)
    (of_first, of_second), (batch, other_batch) = numbers
    rows = [axis for axis in range(first.ndim) if axis not in (*of_first, *batch)]
    columns = [axis for axis in range(second.ndim) if axis not in (*of_second, *other_batch)]
    lead, heights = (tuple(first.shape[axis] for axis in axes) for axes in (batch, rows))
    widths = tuple(second.shape[axis] for axis in columns)
    keys = math.prod(first.shape[axis] for axis in of_first)
    x = first.transpose(*batch, *rows, *of_first).reshape(*lead, math.prod(heights), keys)
    y = second.transpose(*other_batch, *of_second, *columns)
    y = y.reshape(*lead, keys, math.prod(widths))
    return _sum_of_products(x, y).reshape(*lead, *heights, *widths)


def _sum_of_products(x: Array, y: Array) -> Array:
    """(..., m, k) times (..., k, n); sums wrap around, as in eager."""
    return jnp.sum(x[..., :, :, None] * y[..., None, :, :], -2, dtype=x.dtype)
