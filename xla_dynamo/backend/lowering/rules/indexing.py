"""Reading by index: tensors of indices become XLA gathers.

Indices are in range (eager raises an error if not), so no gather is masked or clamped. Only the
ops that take negative indices wrap them. Boolean masks give shapes that depend on data and are
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import PerPlatform, Unsupported, lower

from ._dims import along, at_least_1d, axis

aten = torch.ops.aten

Indices = Sequence[Array | None]


def advanced_key(indices: Indices) -> tuple[Any, ...]:
    """The NumPy key of a list of index tensors, where None means all of a dimension."""
    if any(is_mask(index) for index in indices):
        raise Unsupported(
            "It indexes by a boolean mask, so that the shape of its result depends on data.",
            "Use torch.where or masked_fill, or index by integers.",
        )
    return tuple(slice(None) if index is None else index for index in indices)


def is_mask(index: Array | None) -> bool:
    """Whether an index tensor selects by value (bool, or uint8 as long ago) and not position."""
    return index is not None and index.dtype in (np.bool_, np.uint8)


@PerPlatform
def take(x: Array, key: Any, *, wrap: bool = True) -> Array:
    """x[key] for indices that are known to be in range; `wrap` if they may count from the end."""
    key = narrowed(x, key)
    return x.at[key].get(mode="promise_in_bounds", wrap_negative_indices=wrap)


def narrowed(x: Array, key: Any) -> Any:
    """The key with int32 indices, where these reach all of `x`: they are half the bytes."""
    key = key if isinstance(key, tuple) else (key,)
    if max(x.shape, default=0) >= 2**31:
        return key
    return tuple(e if isinstance(e, slice) else jnp.asarray(e).astype(np.int32) for e in key)


@lower(aten.index.Tensor)
def index(x: Array, indices: Indices) -> Array:
    return take(x, advanced_key(indices))


def clamped(x: Array, indices: Indices) -> Indices:
    """Indices that PyTorch's decompositions make: one out of range means the nearest in range."""
    return [
        None if index is None else jnp.clip(index, -size, size - 1)
        for index, size in zip(indices, x.shape, strict=False)
    ]


@lower(aten._unsafe_index.Tensor)
def unsafe_index(x: Array, indices: Indices) -> Array:
    return index(x, clamped(x, indices))


@lower(aten._unsafe_masked_index.default)
def unsafe_masked_index(x: Array, mask: Array, indices: Indices, fill: float) -> Array:
    given = dict(enumerate(indices))
    if x.size == 0:
        # Nothing can be read. XLA refuses a gather from an empty dimension, so give it one row.
        shape = [size if given.get(dim) is None else 1 for dim, size in enumerate(x.shape)]
        x = jnp.full(shape, fill, x.dtype)
    inside = [
        None if index is None else jnp.clip(index, 0, size - 1)
        for index, size in zip(indices, x.shape, strict=False)
    ]
    return jnp.where(mask, take(x, advanced_key(inside)), jnp.asarray(fill, x.dtype))


@lower(aten.index_select.default)
def index_select(x: Array, dim: int, index: Array) -> Array:
    if index.dtype not in (np.int32, np.int64):  # which shape inference lets pass
        raise Unsupported(
            f"Indices are int32 or int64, and these are {index.dtype}.", "Convert them with long()."
        )
    if x.ndim == 0:
        return x
    return take(x, along(axis(dim, x.ndim), at_least_1d(index)), wrap=False)


@lower(aten.gather.default)
def gather(x: Array, dim: int, index: Array, sparse_grad: bool = False) -> Array:
    if index.size == 0:
        return jnp.zeros(index.shape, x.dtype)
    dim, batching, corner, places = element_wise(at_least_1d(x), dim, at_least_1d(index))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
        operand_batching_dims=batching,
        start_indices_batching_dims=batching,
    )
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    result = lax.gather(corner, places, numbers, (1,) * corner.ndim, mode=mode)
    return result.reshape(index.shape)


def element_wise(x: Array, dim: int, index: Array) -> tuple[int, tuple[int, ...], Array, Array]:
    """The geometry of gather and scatter: each element of `index` is a place along `dim`.

    Returns `dim` from the front, the other axes (batching dimensions), the corner of `x` that
    `index` reaches (batching needs equal sizes), and `index` with an axis for its one coordinate.
    """
    dim = axis(dim, x.ndim)
    batching = tuple(d for d in range(x.ndim) if d != dim)
    limits = [size if d == dim else index.shape[d] for d, size in enumerate(x.shape)]
    corner = lax.slice(x, [0] * x.ndim, limits)
    (places,) = narrowed(corner, index[..., None])
    return dim, batching, corner, places


lower(aten.take.default)(lambda x, index: take(x.reshape(-1), index))


@lower(aten.repeat_interleave.Tensor)
def repeat_interleave(repeats: Array, *, output_size: int | None = None) -> Array:
    if output_size is None:
        raise Unsupported(
            "The shape of its result depends on data: the repeats.", "Pass output_size."
        )
    positions = jnp.arange(repeats.shape[0], dtype=repeats.dtype)
    return jnp.repeat(positions, repeats, total_repeat_length=output_size)


@lower(aten.nonzero_static.default)
def nonzero_static(x: Array, *, size: int, fill_value: int = -1) -> Array:
    if x.size == 0:
        return jnp.full((size, x.ndim), fill_value, np.int64)
    if x.ndim == 0:
        return jnp.zeros((size, 0), np.int64)
    found = jnp.nonzero(x, size=size, fill_value=fill_value)
    return jnp.stack(found, axis=-1)


@lower(aten.nonzero.default, aten.masked_select.default, aten.bincount.default)
def shape_depends_on_data(*args: object, **kwargs: object) -> Array:
    raise Unsupported(
        "The shape of its result depends on data, and XLA compiles for fixed shapes.",
        "Use a form whose shape is known, such as torch.where with a mask.",
    )


@lower(aten.one_hot.default)
def one_hot(index: Array, num_classes: int = -1) -> Array:
    if num_classes < 0:
        raise Unsupported(
            "The shape of its result depends on data: the largest index.", "Pass num_classes."
        )
    classes = lax.broadcasted_iota(index.dtype, (*index.shape, num_classes), index.ndim)
    return (index[..., None] == classes).astype(np.int64)
