"""Max pooling, with indices and gradients -> window maxima, comparisons and one scatter.

Values are a plain window maximum that does not depend on the indices, so a graph that ignores the
indices pays nothing for them. An index is the flat place in the pooled plane, the first of equal
values, the last of NaNs, as in eager. TPUs take the gradient from the input by select-and-scatter
and leave the indices unread; elsewhere a scatter-add at the indices is many times faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import PerPlatform, lower

from . import _windows
from ._windows import Windows, windows

aten = torch.ops.aten

# Up to this many places in a window, comparing each with the maximum beats carrying pairs.
_MOST_COMPARISONS = 64


def max_pool_with_indices(
    rank: int,
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Array, Array]:
    """The maxima and where they were, each computed on its own."""
    over = windows(x.shape[-rank:], kernel_size, stride, padding, dilation, ceil_mode)
    return _windows.window_max(x, over), _indices(x, over)


def max_pool_with_indices_backward(
    rank: int,
    grad: Array,
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Array,
) -> Array:
    over = windows(x.shape[-rank:], kernel_size, stride, padding, dilation, ceil_mode)
    return scatter_by_index(rank, grad, x, indices, over)


def adaptive_max_pool(rank: int, x: Array, output_size: Sequence[int]) -> tuple[Array, Array]:
    """Even windows are plain pooling; uneven ones are gathered, one axis after the other."""
    over = _windows.even_windows(x.shape[-rank:], output_size)
    if over is not None:
        return _windows.window_max(x, over), _indices(x, over)
    values, indices = x, jnp.zeros(x.shape, jnp.int64)
    plane = 1
    for dim in range(-1, -rank - 1, -1):
        size, out = x.shape[dim], output_size[dim]
        starts, ends = _windows.adaptive_bounds(size, out)
        # Repeating a window's last element changes neither its first maximum nor its last NaN.
        members = np.minimum(starts[:, None] + np.arange((ends - starts).max()), ends[:, None] - 1)
        axis = values.ndim + dim
        indices += plane * lax.broadcasted_iota(jnp.int64, values.shape, axis)
        plane *= size
        values, indices = (jnp.take(a, members, axis) for a in (values, indices))
        place = first_maximum_or_last_nan(values, axis + 1)
        values, indices = (
            jnp.take_along_axis(a, place, axis + 1).squeeze(axis + 1) for a in (values, indices)
        )
    return values, indices


def adaptive_max_pool_backward(rank: int, grad: Array, x: Array, indices: Array) -> Array:
    over = _windows.even_windows(x.shape[-rank:], grad.shape[-rank:])
    return scatter_by_index(rank, grad, x, indices, over)


for _rank in (2, 3):
    for _name, _rule in {
        f"max_pool{_rank}d_with_indices": max_pool_with_indices,
        f"max_pool{_rank}d_with_indices_backward": max_pool_with_indices_backward,
        f"adaptive_max_pool{_rank}d": adaptive_max_pool,
        f"adaptive_max_pool{_rank}d_backward": adaptive_max_pool_backward,
    }.items():
        lower(getattr(aten, _name).default)(partial(_rule, _rank))


def first_maximum_or_last_nan(x: Array, axis: int) -> Array:
    last_nan = x.shape[axis] - 1
    last_nan -= jnp.argmax(jnp.flip(jnp.isnan(x), axis), axis, keepdims=True)
    place = jnp.argmax(x, axis, keepdims=True)
    return jnp.where(jnp.isnan(jnp.take_along_axis(x, place, axis)), last_nan, place)


def _indices(x: Array, over: Windows) -> Array:
    """Where the maxima are, found without their values.

    XLA may compute `x` once for the values and once for the indices, and round it otherwise.
    """
    if prod(over.kernel) > _MOST_COMPARISONS:
        return _indices_by_pairs(x, over)
    lead = x.ndim - over.rank
    padding = [(0, 0, 0)] * lead + [(low, high, 0) for low, high in over.padding]
    padded = lax.pad(x, _windows.lowest(x.dtype), padding)
    # From the last place to the first: the first equal one stays, of NaNs the last.
    *earlier, most = _places(padded, over)
    place = jnp.full(most.shape, len(earlier), jnp.int32)
    for number, element in reversed(list(enumerate(earlier))):
        found = ~(element < most) & (most == most)
        place = jnp.where(found, number, place)
        most = jnp.where(found, element, most)
    indices = jnp.zeros(place.shape, jnp.int32)
    for axis, coordinate in enumerate(jnp.unravel_index(place, over.kernel)):
        out = np.arange(over.out_sizes[axis], dtype=np.int32)
        start = out * over.stride[axis] - over.padding[axis][0]
        # A window of lowest values alone matches its padding first; eager takes the first element.
        first = -(np.minimum(start, 0) // over.dilation[axis])
        column = (-1, *[1] * (over.rank - 1 - axis))
        coordinate = jnp.maximum(coordinate, first.reshape(column)) * over.dilation[axis]
        indices = indices * over.sizes[axis] + coordinate + start.reshape(column)
    return indices.astype(jnp.int64)


def _places(padded: Array, over: Windows) -> list[Array]:
    """For each place in a window, in row-major order, that element of all windows."""
    slices = [padded]
    for axis in range(over.rank):
        slices = [part for whole in slices for part in _windows.window_slices(whole, axis, over)]
    return slices


def _indices_by_pairs(x: Array, over: Windows) -> Array:
    """The indices from one window reduction of (value, index) pairs."""
    plane = lax.iota(jnp.int32, prod(over.sizes)).reshape(over.sizes)
    indices = jnp.broadcast_to(plane, x.shape)

    def later_wins(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        (a, i), (b, j) = left, right
        of_nans = (b != b) & ((a == a) | (j > i))
        right_wins = (b > a) | ((b == a) & (j < i)) | of_nans
        return jnp.where(right_wins, b, a), jnp.where(right_wins, j, i)

    nowhere = np.int32(np.iinfo(np.int32).max)
    initial = (_windows.lowest(x.dtype), nowhere)
    _, found = lax.reduce_window(
        (x, indices), initial, later_wins, **_windows.window_arguments(x, over)
    )
    return found.astype(jnp.int64)


@PerPlatform
def scatter_by_index(
    rank: int, grad: Array, x: Array, indices: Array, over: Windows | None = None
) -> Array:
    """The gradient by `x` of its elements at `indices`, the maxima of the windows `over` it."""
    planes = prod(x.shape[:-rank])
    flat = jnp.zeros((planes, prod(x.shape[-rank:])), dtypes.accumulation(x.dtype))
    rows = lax.broadcasted_iota(jnp.int32, (planes, prod(grad.shape[-rank:])), 0)
    columns = indices.reshape(rows.shape).astype(jnp.int32)
    updates = grad.reshape(rows.shape).astype(flat.dtype)
    flat = flat.at[rows, columns].add(updates, mode="promise_in_bounds")
    return flat.reshape(x.shape).astype(x.dtype)


@scatter_by_index.on("tpu")
def _select_and_scatter(
    rank: int, grad: Array, x: Array, indices: Array, over: Windows | None = None
) -> Array:
    if over is None or any(d > 1 for d in over.dilation):
        return scatter_by_index.plain(rank, grad, x, indices)
    _, transpose = jax.vjp(lambda x: _windows.window_max(x, over), x)
    return transpose(grad)[0]
