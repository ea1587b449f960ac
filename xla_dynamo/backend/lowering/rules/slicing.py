"""Reading and writing static parts of a tensor: slices, diagonals, triangles and windows.

Reading is a (strided) XLA slice. Writing is a dynamic_update_slice with constant starts, which XLA
does in place, or a padded select where there are steps. Nothing here needs a gather except
overlapping windows and odd strides, whose indices are iotas and never constants.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import lower

from ._dims import along, axis
from ._promotion import cast

aten = torch.ops.aten


def _bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """PyTorch's slice bounds, clamped to [0, size]; an end before the start selects nothing."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


@lower(aten.select.int, aten.select_copy.int)
def select(x: Array, dim: int, index: int) -> Array:
    return lax.index_in_dim(x, index, axis(dim, x.ndim), keepdims=False)


@lower(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_(
    x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    dim = axis(dim, x.ndim)
    first, last = _bounds(start, end, x.shape[dim])
    return lax.slice_in_dim(x, first, last, step, dim)


@lower(aten.narrow.default, aten.narrow_copy.default)
def narrow(x: Array, dim: int, start: int, length: int) -> Array:
    start = start % x.shape[axis(dim, x.ndim)] if start < 0 else start
    return lax.slice_in_dim(x, start, start + length, 1, axis(dim, x.ndim))


@lower(aten.split.Tensor, aten.split_copy.Tensor, aten.unsafe_split.Tensor)
def split(x: Array, size: int, dim: int = 0) -> tuple[Array, ...]:
    total = x.shape[axis(dim, x.ndim)]
    count = max(1, -(-total // size)) if size else 1
    sizes = [min(size, total - place * size) for place in range(count)] if size else [total]
    return split_with_sizes(x, sizes, dim)


@lower(
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.unsafe_split_with_sizes.default,
)
def split_with_sizes(x: Array, sizes: Sequence[int], dim: int = 0) -> tuple[Array, ...]:
    return tuple(lax.split(x, sizes, axis(dim, x.ndim)))


@lower(aten.unbind.int, aten.unbind_copy.int)
def unbind(x: Array, dim: int = 0) -> tuple[Array, ...]:
    count = x.shape[axis(dim, x.ndim)]
    return tuple(select(x, dim, index) for index in range(count))


@lower(aten.slice_scatter.default)
def slice_scatter(
    x: Array,
    source: Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Array:
    dim = axis(dim, x.ndim)
    size = x.shape[dim]
    first, last = _bounds(start, end, size)
    source = jnp.broadcast_to(cast(source, x.dtype), slice_(x, dim, start, end, step).shape)
    if source.size == 0:
        return x
    if step == 1:
        return lax.dynamic_update_slice_in_dim(x, source, first, dim)
    place = lax.broadcasted_iota(np.int32, x.shape, dim)
    taken = (place >= first) & (place < last) & ((place - first) % step == 0)
    return jnp.where(taken, _spread(source, dim, size, first, step), x)


def _spread(source: Array, dim: int, size: int, first: int, step: int) -> Array:
    """`source` at first, first + step, ... of an otherwise zero dimension of `size`."""
    extent = (source.shape[dim] - 1) * step + 1
    padding = [(0, 0, 0)] * source.ndim
    padding[dim] = (first, size - first - extent, step - 1)
    return lax.pad(source, jnp.zeros((), source.dtype), padding)


@lower(aten.slice_backward.default)
def slice_backward(
    gradient: Array, sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Array:
    dim = axis(dim, len(sizes))
    if gradient.size == 0:
        return jnp.zeros(sizes, gradient.dtype)
    return _spread(gradient, dim, sizes[dim], _bounds(start, end, sizes[dim])[0], step)


@lower(aten.select_scatter.default)
def select_scatter(x: Array, source: Array, dim: int, index: int) -> Array:
    dim = axis(dim, x.ndim)
    row = jnp.expand_dims(jnp.broadcast_to(source, select(x, dim, index).shape), dim)
    return lax.dynamic_update_slice_in_dim(x, cast(row, x.dtype), index % x.shape[dim], dim)


@lower(aten.select_backward.default)
def select_backward(gradient: Array, sizes: Sequence[int], dim: int, index: int) -> Array:
    dim = axis(dim, len(sizes))
    return _spread(jnp.expand_dims(gradient, dim), dim, sizes[dim], index % sizes[dim], 1)


@lower(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(x: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    """A strided slice of the flattened matrices: each step is one row and one column."""
    x = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    length = _diagonal_length(rows, columns, offset)
    flat = x.reshape(*x.shape[:-2], rows * columns)
    if length == 0:
        return flat[..., :0]
    first = offset if offset >= 0 else -offset * columns
    return lax.slice_in_dim(flat, first, first + (length - 1) * (columns + 1) + 1, columns + 1, -1)


def _diagonal_length(rows: int, columns: int, offset: int) -> int:
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


@lower(aten.diagonal_scatter.default)
def diagonal_scatter(
    x: Array, source: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Array:
    matrices = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    rows, columns = matrices.shape[-2:]
    if _diagonal_length(rows, columns, offset) == 0:
        return x
    result = jnp.where(
        _on_diagonal(rows, columns, offset),
        _along_rows(cast(source, x.dtype), rows, offset),
        matrices,
    )
    return jnp.moveaxis(result, (-2, -1), (dim1, dim2))


@lower(aten.diag_embed.default)
def diag_embed(x: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    size = x.shape[-1] + abs(offset)
    values = _along_rows(x, size, offset)
    zero = jnp.zeros((), x.dtype)
    result = jnp.where(_on_diagonal(size, size, offset), values, zero)
    return jnp.moveaxis(result, (-2, -1), (dim1, dim2))


def _on_diagonal(rows: int, columns: int, offset: int) -> Array:
    row = lax.broadcasted_iota(np.int32, (rows, columns), 0)
    return row + offset == lax.broadcasted_iota(np.int32, (rows, columns), 1)


def _along_rows(values: Array, rows: int, offset: int) -> Array:
    """Diagonal values as a column [..., rows, 1]: the element of each row, 0 where it has none."""
    first = max(-offset, 0)
    padding = [(0, 0, 0)] * (values.ndim - 1) + [(first, rows - first - values.shape[-1], 0)]
    return lax.pad(values, jnp.zeros((), values.dtype), padding)[..., None]


lower(aten.tril.default)(jnp.tril)
lower(aten.triu.default)(jnp.triu)


@lower(aten.trace.default)
def trace(x: Array) -> Array:
    elements = diagonal(x)
    return jnp.sum(elements, dtype=None if jnp.issubdtype(x.dtype, jnp.inexact) else np.int64)


@lower(aten.unfold.default, aten.unfold_copy.default)
def unfold(x: Array, dim: int, size: int, step: int) -> Array:
    """Windows along `dim`; the new last dim runs through a window."""
    if x.ndim == 0:
        return x.reshape(1)[:size]
    dim = axis(dim, x.ndim)
    count = (x.shape[dim] - size) // step + 1
    if size <= step:
        # Windows do not overlap: split into steps, and take the first elements of each.
        padding = [(0, 0, 0)] * x.ndim
        padding[dim] = (0, count * step - x.shape[dim], 0)
        padded = lax.pad(x, jnp.zeros((), x.dtype), padding)
        steps = padded.reshape(*x.shape[:dim], count, step, *x.shape[dim + 1 :])
        return jnp.moveaxis(lax.slice_in_dim(steps, 0, size, axis=dim + 1), dim + 1, -1)
    places = lax.iota(np.int32, count)[:, None] * step + lax.iota(np.int32, size)
    windows = x.at[along(dim, places)].get(mode="promise_in_bounds", wrap_negative_indices=False)
    return jnp.moveaxis(windows, dim + 1, -1)


@lower(aten.unfold_backward.default)
def unfold_backward(gradient: Array, sizes: Sequence[int], dim: int, size: int, step: int) -> Array:
    source = jax.ShapeDtypeStruct(tuple(sizes), gradient.dtype)
    transposed = jax.linear_transpose(lambda x: unfold(x, dim, size, step), source)
    return transposed(gradient)[0]
