"""Sorting and order statistics: sort, topk, kthvalue, median and mode.

Sorts are stable and carry an iota of positions; NaN is the largest value, -0 equals 0. A descending
sort reverses the order of the keys, not of the result, so that ties keep their order.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import lower

from ._dims import at_least_1d, axis
from ._promotion import is_inexact
from ._selection import top

aten = torch.ops.aten


def sort_with_positions(x: Array, dim: int, descending: bool = False) -> tuple[Array, Array]:
    """Sorted values and where they came from (int32 where that is enough)."""
    dtype = np.int32 if x.shape[dim] < 2**31 else np.int64
    positions = lax.broadcasted_iota(dtype, x.shape, dim)
    if descending and not is_inexact(x.dtype):
        keys, order = lax.sort((~x, positions), dimension=dim, num_keys=1)
        return ~keys, order
    operands = (x, positions)
    if not descending:
        values, order = lax.sort(operands, dimension=dim, num_keys=1)
        return values, order
    # Negated keys would leave NaN last. Reversing twice keeps the order of ties.
    flipped = tuple(lax.rev(operand, (dim,)) for operand in operands)
    values, order = lax.sort(flipped, dimension=dim, num_keys=1)
    return lax.rev(values, (dim,)), lax.rev(order, (dim,))


@lower(aten.sort.default)
def sort(x: Array, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    values, order = sort_with_positions(at_least_1d(x), axis(dim, x.ndim), descending)
    return values.reshape(x.shape), order.reshape(x.shape)


@lower(aten.sort.stable)
def sort_stable(
    x: Array, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Array, Array]:
    return sort(x, dim, descending)


@lower(aten.argsort.default)
def argsort(x: Array, dim: int = -1, descending: bool = False) -> Array:
    return sort(x, dim, descending)[1]


@lower(aten.argsort.stable)
def argsort_stable(x: Array, *, stable: bool, dim: int = -1, descending: bool = False) -> Array:
    return sort(x, dim, descending)[1]


@lower(aten.msort.default)
def msort(x: Array) -> Array:
    return lax.sort(x, dimension=0) if x.ndim else x


@lower(aten.topk.default)
def topk(
    x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Array, Array]:
    source = jnp.moveaxis(at_least_1d(x), axis(dim, x.ndim), -1)
    if source.dtype == np.bool_:
        source = source.astype(np.int8)
    values, order = top(source, k, largest)
    values = values.astype(x.dtype)
    if x.ndim == 0:
        return values.reshape(()), order.reshape(())
    over = axis(dim, x.ndim)
    return jnp.moveaxis(values, -1, over), jnp.moveaxis(order, -1, over)


@lower(aten.kthvalue.default)
def kthvalue(x: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    over = axis(dim, x.ndim)
    values, order = sort_with_positions(at_least_1d(x), over)
    return _pick(x, values, order, over, k - 1, keepdim)


def _pick(
    x: Array, values: Array, order: Array, dim: int, at: int, keepdim: bool
) -> tuple[Array, Array]:
    """The values and positions at a static index of the sorted ones."""
    pair = (lax.index_in_dim(values, at, dim), lax.index_in_dim(order, at, dim))
    shape = [1 if d == dim else n for d, n in enumerate(x.shape) if keepdim or d != dim]
    return pair[0].reshape(shape), pair[1].reshape(shape)


@lower(aten.median.default)
def median(x: Array) -> Array:
    if x.size == 0:
        return jnp.full((), jnp.nan, x.dtype)
    flat = lax.sort(x.reshape(-1))
    middle = flat[(x.size - 1) // 2]
    # NaN sorts last.
    return jnp.where(jnp.isnan(flat[-1]), flat[-1], middle) if is_inexact(x.dtype) else middle


@lower(aten.nanmedian.default)
def nanmedian(x: Array) -> Array:
    if x.size == 0 or not is_inexact(x.dtype):
        return median(x)
    return nanmedian_dim(x.reshape(-1), 0)[0]


@lower(aten.median.dim)
def median_dim(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    over = axis(dim, x.ndim)
    source = at_least_1d(x)
    values, order = sort_with_positions(source, over)
    size = source.shape[over]
    value, place = _pick(x, values, order, over, (size - 1) // 2, keepdim)
    if not is_inexact(x.dtype):
        return value, place
    isnan = jnp.isnan(source)
    any_nan = jnp.any(isnan, over).reshape(value.shape)
    first_nan = lax.argmax(isnan.astype(np.int8), over, np.int32).reshape(value.shape)
    nan = jnp.full_like(value, jnp.nan)
    return jnp.where(any_nan, nan, value), jnp.where(any_nan, first_nan, place)


@lower(aten.nanmedian.dim)
def nanmedian_dim(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    if not is_inexact(x.dtype):
        return median_dim(x, dim, keepdim)
    over = axis(dim, x.ndim)
    source = at_least_1d(x)
    values, order = sort_with_positions(source, over)
    numbers = jnp.sum(~jnp.isnan(source), over, keepdims=True, dtype=np.int32)
    at = jnp.maximum(numbers - 1, 0) // 2
    shape = [1 if d == over else n for d, n in enumerate(x.shape) if keepdim or d != over]
    mode = "promise_in_bounds"
    value = jnp.take_along_axis(values, at, over, mode=mode)
    place = jnp.take_along_axis(order, at, over, mode=mode)
    return value.reshape(shape), place.reshape(shape)


@lower(aten.mode.default)
def mode(x: Array, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """The smallest of the most frequent values, where it occurs last."""
    over = axis(dim, x.ndim)
    values, order = sort_with_positions(at_least_1d(x), over)
    place = lax.broadcasted_iota(np.int32, values.shape, over)
    same = lax.slice_in_dim(values, 1, None, axis=over) == lax.slice_in_dim(
        values, 0, values.shape[over] - 1, axis=over
    )
    padding = [(int(d == over), 0, 0) for d in range(values.ndim)]
    repeated = lax.pad(same, np.False_, padding)
    run_start = lax.cummax(jnp.where(repeated, 0, place), axis=over)
    best = jnp.expand_dims(lax.argmax(place - run_start, over, np.int32), over)
    value = jnp.take_along_axis(values, best, over, mode="promise_in_bounds")
    index = jnp.take_along_axis(order, best, over, mode="promise_in_bounds")
    shape = [1 if d == over else n for d, n in enumerate(x.shape) if keepdim or d != over]
    return value.reshape(shape), index.reshape(shape)
