"""Sorting and order statistics: sort, topk, kthvalue, median and mode.

Sorts are stable and carry an iota of positions; NaN is the largest value, -0 equals 0. A descending
sort reverses the order of the keys, not of the result, so that ties keep their order.
"""

from __future__ import annotations

from typing import Any

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


@lower(aten.sort.default, aten.sort.stable)
def sort(
    x: Array, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[Array, Array]:
    values, order = sort_with_positions(at_least_1d(x), axis(dim, x.ndim), descending)
    return values.reshape(x.shape), order.reshape(x.shape)


@lower(aten.argsort.default, aten.argsort.stable)
def argsort(*args: Any, **kwargs: Any) -> Array:
    return sort(*args, **kwargs)[1]


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
    pair = sort_with_positions(at_least_1d(x), over)
    return _picked(x, pair, over, k - 1, keepdim)


def _picked(
    x: Array, pair: tuple[Array, Array], dim: int, at: int | Array, keepdim: bool
) -> tuple[Array, Array]:
    """The sorted values and positions of `x` at an index, or at one for each row."""
    shape = [1 if d == dim else n for d, n in enumerate(x.shape) if keepdim or d != dim]
    values, positions = (
        lax.index_in_dim(each, at, dim)
        if isinstance(at, int)
        else jnp.take_along_axis(each, at, dim, mode="promise_in_bounds")
        for each in pair
    )
    return values.reshape(shape), positions.reshape(shape)


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
    middle = (source.shape[over] - 1) // 2
    value, place = _picked(x, sort_with_positions(source, over), over, middle, keepdim)
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
    pair = sort_with_positions(source, over)
    numbers = jnp.sum(~jnp.isnan(source), over, keepdims=True, dtype=np.int32)
    return _picked(x, pair, over, jnp.maximum(numbers - 1, 0) // 2, keepdim)


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
    return _picked(x, (values, order), over, best, keepdim)
