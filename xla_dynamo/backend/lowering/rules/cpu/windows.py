"""Windows on the CPU: a few strided slices, combined axis by axis, and back by broadcasts.

lax.reduce_window is a scalar loop over each window there. XLA fuses and vectorizes slices: they are
2 to 20 times faster for the usual kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .. import _windows, max_pooling
from .._windows import Windows, lowest, window_slices
from .prims import materialize

# Above this extent on one axis, slices would be too many ops.
_MOST_SLICES = 32


@_windows.window_sum.on("cpu")
def window_sum(x: Array, over: Windows) -> Array:
    if max(over.kernel) > _MOST_SLICES:
        return _windows.window_sum.plain(x, over)
    return _by_slices(x, over, np.zeros((), x.dtype), lax.add)


@_windows.window_sum_transpose.on("cpu")
def window_sum_transpose(grad: Array, over: Windows) -> Array:
    if over.disjoint and max(over.kernel) <= _MOST_SLICES:
        return _spread(grad, over)
    return _windows.window_sum_transpose.plain(grad, over)


@_windows.window_max.on("cpu")
def window_max(x: Array, over: Windows) -> Array:
    if max(over.kernel) > _MOST_SLICES:
        return _windows.window_max.plain(x, over)
    return _by_slices(x, over, lowest(x.dtype), lax.max)


@max_pooling.scatter_by_index.on("cpu")
def scatter_by_index(
    rank: int, grad: Array, x: Array, indices: Array, over: Windows | None = None
) -> Array:
    """Where no element is in two windows, each asks its own whether it was the maximum.

    A scatter takes seven times as long. XLA would find the maxima anew for each element that asks
    where one program pools and takes the gradient: 590,000 windows of 2x2 in 43 ms, not 4.

    As int64: with int32 XLA's loop that finds them is no vector code (23 ms, not 2).
    """
    if over is None or not over.disjoint or max(over.kernel) > _MOST_SLICES:
        return max_pooling.scatter_by_index.plain(rank, grad, x, indices, over)
    places = lax.iota(np.int32, math.prod(over.sizes)).reshape(over.sizes)
    is_maximum = _spread(materialize(indices).astype(np.int32), over) == places
    return jnp.where(is_maximum, _spread(grad, over), 0).astype(x.dtype)


def _by_slices(x: Array, over: Windows, fill: Any, combine: Callable[..., Array]) -> Array:
    lead = x.ndim - over.rank
    x = lax.pad(x, fill, [(0, 0, 0)] * lead + [(low, high, 0) for low, high in over.padding])
    for axis in range(over.rank):
        x = reduce(combine, window_slices(x, axis, over))
    return x


def _spread(grad: Array, over: Windows) -> Array:
    """The transpose of the sum of disjoint windows: a broadcast into each window."""
    lead = grad.ndim - over.rank
    for axis in range(over.rank):
        dim, kernel, stride = lead + axis, over.kernel[axis], over.stride[axis]
        blocks = lax.broadcast_in_dim(
            grad,
            (*grad.shape[: dim + 1], kernel, *grad.shape[dim + 1 :]),
            [i for i in range(grad.ndim + 1) if i != dim + 1],
        )
        gap = [(0, stride - kernel if i == dim + 1 else 0, 0) for i in range(blocks.ndim)]
        blocks = lax.pad(blocks, np.zeros((), grad.dtype), gap)
        grad = blocks.reshape(*grad.shape[:dim], grad.shape[dim] * stride, *grad.shape[dim + 1 :])
        missing = over.sizes[axis] - grad.shape[dim]
        ends = [(0, missing if i == dim else 0, 0) for i in range(grad.ndim)]
        grad = lax.pad(grad, np.zeros((), grad.dtype), ends)
    return grad
