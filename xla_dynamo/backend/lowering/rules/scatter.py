"""Writing by index: index_put, index_* and scatter_* become XLA scatters.

Every op is one scatter of the updates into the target, in the axes' own order: other axes than the
indexed one are window or batching dimensions, so no grid of indices is built. Indices are in range.
Sums of 16-bit floats accumulate in float32, as in eager.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.dtypes import accumulation
from xla_dynamo.backend.lowering.registry import PerPlatform, lower

from ._dims import along, at_least_1d, axis
from ._promotion import cast, is_inexact, weakest
from .indexing import Indices, advanced_key, clamped, element_wise, is_mask, narrowed

aten = torch.ops.aten

_REDUCTIONS = {
    "add": "add",
    "sum": "add",
    "mean": "add",
    "multiply": "multiply",
    "prod": "multiply",
    "amax": "max",
    "amin": "min",
}

_SCATTERS = {
    None: lax.scatter,
    "add": lax.scatter_add,
    "multiply": lax.scatter_mul,
    "max": lax.scatter_max,
    "min": lax.scatter_min,
}
_ON_BOOLS = {"add": "max", "multiply": "min"}


@lower(aten.index_put.default, aten._index_put_impl.default)
def index_put(
    x: Array, indices: Indices, values: Array, accumulate: bool = False, unsafe: bool = False
) -> Array:
    if any(is_mask(index) for index in indices):
        return _put_masked(x, indices, values, accumulate)
    return _update(x, advanced_key(indices), values, "add" if accumulate else None)


@lower(aten._unsafe_index_put.default)
def unsafe_index_put(x: Array, indices: Indices, values: Array, accumulate: bool = False) -> Array:
    return index_put(x, clamped(x, indices), values, accumulate)


@lower(aten._unsafe_masked_index_put_accumulate.default)
def unsafe_masked_index_put_accumulate(
    x: Array, mask: Array, indices: Indices, values: Array
) -> Array:
    if x.size == 0:
        return x
    values = jnp.where(mask, values, jnp.zeros((), values.dtype))
    return _update(x, advanced_key(clamped(x, indices)), values, "add")


@lower(aten.index_add.default)
def index_add(x: Array, dim: int, index: Array, source: Array, *, alpha: float = 1) -> Array:
    if alpha != 1:
        source = source * cast(alpha, source.dtype)
    return _update_rows(x, dim, index, source, "add")


@lower(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x: Array, dim: int, index: Array, value: Array | float) -> Array:
    return _update_rows(x, dim, index, cast(value, x.dtype), None)


@lower(aten.put.default)
def put(x: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    values = source.reshape(index.shape)
    return _update(x.reshape(-1), index, values, "add" if accumulate else None).reshape(x.shape)


@lower(aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce)
def scatter(
    x: Array, dim: int, index: Array, source: Array | float, *, reduce: str | None = None
) -> Array:
    return _scatter(x, dim, index, source, None if reduce is None else _REDUCTIONS[reduce])


@lower(aten.masked_scatter.default)
def masked_scatter(x: Array, mask: Array, source: Array) -> Array:
    x, mask = jnp.broadcast_arrays(x, mask)
    if source.size == 0:
        return x
    flat = mask.reshape(-1)
    place = jnp.cumsum(flat, dtype=np.int32) - 1
    values = source.reshape(-1).at[place].get(mode="clip", wrap_negative_indices=False)
    return jnp.where(mask, values.reshape(x.shape), x)


@lower(aten.masked_scatter_backward.default)
def masked_scatter_backward(grad: Array, mask: Array, sizes: Sequence[int]) -> Array:
    """The gradient of the source: its k-th element went where `mask` is True for the k-th time."""
    mask = jnp.broadcast_to(mask, grad.shape).reshape(-1)
    count = math.prod(sizes)
    place = jnp.where(mask, jnp.cumsum(mask, dtype=np.int32) - 1, count)
    return jnp.zeros(count, grad.dtype).at[place].set(grad.reshape(-1), mode="drop").reshape(sizes)


def _put_masked(x: Array, indices: Indices, values: Array, accumulate: bool) -> Array:
    """index_put by boolean masks; one alone is a select, whose k-th True takes the k-th row."""
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) > 1:
        key = _positions(x, indices, values)
        return _update(x, key, values, "add" if accumulate else None, mode="drop")
    dim, mask = given[0]
    mask = mask.astype(np.bool_)
    trailing = x.shape[dim + mask.ndim :]
    row_axis = values.ndim - len(trailing) - 1
    if row_axis >= 0 and values.shape[row_axis] != 1:
        place = jnp.cumsum(mask.reshape(-1), dtype=np.int32) - 1
        rows = values.at[along(row_axis, jnp.maximum(place, 0))].get(mode="clip")
        shape = (*values.shape[:row_axis], *mask.shape, *values.shape[row_axis + 1 :])
        values = rows.reshape(shape)
    elif row_axis >= 0:
        ones = (1,) * mask.ndim
        values = values.reshape(*values.shape[:row_axis], *ones, *values.shape[row_axis + 1 :])
    put = x + values if accumulate else values
    return jnp.where(mask.reshape(*mask.shape, *(1 for _ in trailing)), put, x)


def _positions(x: Array, indices: Indices, values: Array) -> tuple[Any, ...]:
    """The key with masks among other indices as the positions of what is true.

    Their number follows from the shapes of the other indices or of `values`. Where it does not,
    there are as many as a mask has elements, and those in excess are out of range. A single
    position goes with all of the others.
    """
    masks = [index.astype(np.bool_) for index in indices if index is not None and is_mask(index)]
    length = _length(x, indices, values)
    size = max(mask.size for mask in masks) if length is None else length
    counts = [jnp.sum(mask, dtype=np.int32) for mask in masks]
    most = functools.reduce(jnp.maximum, counts)
    total = jnp.where(functools.reduce(jnp.minimum, counts) > 0, most, 0)
    is_there = jnp.arange(size) < (total if length is None else size)
    key: list[Any] = []
    for index in indices:
        if index is None or not is_mask(index):
            key.append(slice(None) if index is None else index)
            continue
        mask, count = masks.pop(0), counts.pop(0)
        outside = x.shape[len(key)]
        for place in jnp.nonzero(mask, size=size, fill_value=outside):
            place = jnp.where(count == 1, place[:1], place)
            key.append(jnp.where(is_there, place, outside) if size else place)
    return tuple(key)


def _length(x: Array, indices: Indices, values: Array) -> int | None:
    """How many elements of each mask are true, if the other shapes fit no other number."""
    spans = [1 if index is None or not is_mask(index) else index.ndim for index in indices]
    dims = [
        dim
        for at, index in enumerate(indices)
        for dim in range(sum(spans[:at]), sum(spans[: at + 1]))
        if index is not None
    ]
    together = dims == list(range(dims[0], dims[-1] + 1))
    after = x.ndim - dims[-1] - 1 if together else x.ndim - len(dims)
    axis_ = values.ndim - after - 1
    lengths = [i.shape[-1] for i in indices if i is not None and i.ndim and not is_mask(i)]
    lengths += [values.shape[axis_]] if axis_ >= 0 else []
    return next((length for length in lengths if length != 1), None)


def _update(
    x: Array, key: Any, values: Array, reduction: str | None, mode: str = "promise_in_bounds"
) -> Array:
    """x[key] = values, or the like with a reduction named as in jax's `.at`."""
    dtype = accumulation(x.dtype) if reduction in ("add", "multiply") else x.dtype
    method = _on_dtype(reduction, dtype) or "set"
    return written(x.astype(dtype), key, values.astype(dtype), method, mode).astype(x.dtype)


@PerPlatform
def written(x: Array, key: Any, values: Array, method: str, mode: str) -> Array:
    """x.at[key].method(values)."""
    return getattr(x.at[narrowed(x, key)], method)(values, mode=mode)


def _update_rows(x: Array, dim: int, index: Array, source: Array, reduction: str | None) -> Array:
    """Whole slices of `x` along `dim` get those of `source`."""
    target, index = at_least_1d(x), at_least_1d(index)
    dim = axis(dim, target.ndim)
    if source.ndim:
        source = source.reshape(*target.shape[:dim], index.size, *target.shape[dim + 1 :])
    return _update(target, along(dim, index), source, reduction).reshape(x.shape)


def _scatter(
    x: Array, dim: int, index: Array, source: Array | float, reduction: str | None
) -> Array:
    """Element-wise scatter along `dim`: the other axes are batching dimensions."""
    if index.size == 0:
        return x
    target, index = at_least_1d(x), at_least_1d(index)
    dim, batching, corner, places = element_wise(target, dim, index)
    dtype = accumulation(x.dtype) if reduction in ("add", "multiply") else x.dtype
    updates = cast(source, dtype)
    if updates.ndim:
        updates = lax.slice(updates, [0] * updates.ndim, index.shape)
    updates = jnp.broadcast_to(updates, index.shape)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(),
        inserted_window_dims=(dim,),
        scatter_dims_to_operand_dims=(dim,),
        operand_batching_dims=batching,
        scatter_indices_batching_dims=batching,
    )
    function = _SCATTERS[_on_dtype(reduction, dtype)]
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    result = function(corner.astype(dtype), places, updates, numbers, mode=mode).astype(x.dtype)
    if corner.shape != target.shape:
        result = lax.dynamic_update_slice(target, result, [0] * target.ndim)
    return result.reshape(x.shape)


def _reduced(
    update: Callable[..., Array],
    x: Array,
    dim: int,
    index: Array,
    source: Array,
    reduce: str,
    *,
    include_self: bool = True,
) -> Array:
    """A reduction by `update`; without `include_self`, what it touches starts from the identity."""
    name = _REDUCTIONS[reduce]
    dtype = accumulation(x.dtype) if name in ("add", "multiply") else x.dtype
    start = x.astype(dtype)
    if not include_self:
        identities = jnp.full(source.shape, _identity(name, dtype))
        start = update(start, dim, index, identities, None)
    total = update(start, dim, index, source.astype(dtype), name)
    if reduce != "mean":
        return total
    counts = jnp.full(x.shape, 1 if include_self else 0, np.int32)
    counts = update(counts, dim, index, jnp.ones(source.shape, np.int32), "add")
    counts = jnp.maximum(counts, 1).astype(dtype)
    return total / counts if is_inexact(dtype) else jnp.floor_divide(total, counts)


lower(aten.index_copy.default)(functools.partial(_update_rows, reduction=None))
lower(aten.scatter_add.default)(functools.partial(_scatter, reduction="add"))
lower(aten.index_reduce.default)(functools.partial(_reduced, _update_rows))
lower(aten.scatter_reduce.two)(functools.partial(_reduced, _scatter))


def _on_dtype(reduction: str | None, dtype: np.dtype) -> str | None:
    """XLA neither adds nor multiplies bools: or is their maximum, and their minimum."""
    return _ON_BOOLS.get(reduction or "", reduction) if dtype == np.bool_ else reduction


def _identity(reduction: str, dtype: np.dtype) -> np.ndarray:
    if reduction in ("add", "multiply"):
        return np.asarray(int(reduction == "multiply"), dtype)
    if dtype == np.bool_:
        return np.asarray(reduction == "min")
    return np.asarray(weakest(dtype, largest=reduction == "max"), dtype)
