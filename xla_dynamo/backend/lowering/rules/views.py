"""Views and their copies: XLA reshapes, transposes, broadcasts and slices.

A graph is functional, so a view is a value like any other, and its `_copy` twin is the same op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.dtypes import to_numpy
from xla_dynamo.backend.lowering.registry import lower

from ._dims import axis
from ._promotion import cast, is_complex, result_dtype

aten = torch.ops.aten


@lower(aten.view.default, aten.view_copy.default, aten.reshape.default, aten._unsafe_view.default)
@lower(aten._reshape_copy.default, aten._reshape_alias.default, aten._reshape_alias_copy.default)
def view(x: Array, size: Sequence[int], _stride: Sequence[int] = ()) -> Array:
    return jnp.reshape(x, tuple(size))


@lower(aten.flatten.using_ints)
def flatten(x: Array, start: int = 0, end: int = -1) -> Array:
    if x.ndim == 0:
        return x.reshape(1)
    start, end = axis(start, x.ndim), axis(end, x.ndim)
    merged = int(np.prod(x.shape[start : end + 1]))
    return x.reshape(*x.shape[:start], merged, *x.shape[end + 1 :])


@lower(aten.view.dtype, aten.view_copy.dtype)
def view_dtype(x: Array, dtype: torch.dtype) -> Array:
    """The same bytes as another dtype; the last dim grows or shrinks with its width."""
    target = to_numpy(dtype)
    if x.size == 0:
        last = x.shape[-1] * x.dtype.itemsize // target.itemsize
        return jnp.zeros((*x.shape[:-1], last), target)
    if x.ndim == 0:
        return view_dtype(x.reshape(1), dtype).reshape(())
    if is_complex(x.dtype):
        x = jnp.stack([x.real, x.imag], axis=-1).reshape(*x.shape[:-1], -1)
    if not is_complex(target):
        return x.view(np.uint8) != 0 if target == np.bool_ else x.view(target)
    parts = x.view(np.dtype(f"float{target.itemsize * 4}"))
    return lax.complex(parts[..., 0::2], parts[..., 1::2])


@lower(aten.expand.default, aten.expand_copy.default)
def expand(x: Array, size: Sequence[int], *, implicit: bool = False) -> Array:
    added = len(size) - x.ndim
    shape = [x.shape[d - added] if n == -1 else n for d, n in enumerate(size)]
    return jnp.broadcast_to(x, shape)


@lower(aten.permute.default, aten.permute_copy.default)
def permute(x: Array, dims: Sequence[int]) -> Array:
    return lax.transpose(x, [axis(dim, x.ndim) for dim in dims])


@lower(aten.transpose.int, aten.transpose_copy.int)
def transpose(x: Array, dim0: int, dim1: int) -> Array:
    return jnp.swapaxes(x, dim0, dim1) if x.ndim else x


lower(aten.t.default, aten.t_copy.default, aten.numpy_T.default)(jnp.transpose)
lower(aten.squeeze.default, aten.squeeze_copy.default)(jnp.squeeze)
lower(aten.unsqueeze.default, aten.unsqueeze_copy.default)(jnp.expand_dims)
lower(aten.repeat.default, aten.tile.default)(jnp.tile)


@lower(aten.squeeze.dim, aten.squeeze_copy.dim, aten.squeeze.dims, aten.squeeze_copy.dims)
def squeeze_dims(x: Array, dims: Sequence[int] | int) -> Array:
    dims = [dims] if isinstance(dims, int) else dims
    chosen = {axis(dim, x.ndim) for dim in dims} if x.ndim else set()
    return x.reshape([n for d, n in enumerate(x.shape) if n != 1 or d not in chosen])


@lower(
    aten.clone.default,
    aten.alias.default,
    aten.alias_copy.default,
    aten.detach.default,
    aten.detach_copy.default,
    aten.contiguous.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
)
def same(x: Array, **_: Any) -> Array:
    return x


@lower(aten._to_copy.default)
def to_copy(x: Array, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return x if dtype is None else cast(x, to_numpy(dtype))


@lower(aten.copy.default)
def copy(x: Array, source: Array, non_blocking: bool = False) -> Array:
    return jnp.broadcast_to(cast(source, x.dtype), x.shape)


@lower(aten.cat.default)
def cat(tensors: Sequence[Array], dim: int = 0) -> Array:
    dtype = result_dtype(*tensors)
    # PyTorch skips tensors of shape [0], whatever the other shapes are.
    parts = [part.astype(dtype) for part in tensors if part.shape != (0,)]
    if not parts:
        return jnp.zeros(0, dtype)
    return lax.concatenate(parts, axis(dim, parts[0].ndim))


@lower(aten.stack.default)
def stack(tensors: Sequence[Array], dim: int = 0) -> Array:
    dtype = result_dtype(*tensors)
    return jnp.stack([part.astype(dtype) for part in tensors], dim)


@lower(aten.repeat_interleave.self_int)
def repeat_interleave(
    x: Array, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> Array:
    return jnp.repeat(x, repeats, dim)


@lower(aten.flip.default)
def flip(x: Array, dims: Sequence[int]) -> Array:
    return lax.rev(x, [axis(dim, x.ndim) for dim in dims]) if x.ndim else x


@lower(aten.roll.default)
def roll(x: Array, shifts: Sequence[int] | int, dims: Sequence[int] | int = ()) -> Array:
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if x.ndim == 0 or x.size == 0:
        return x
    return jnp.roll(x, shifts, dims) if dims else jnp.roll(x, shifts[0])


@lower(aten.rot90.default)
def rot90(x: Array, k: int = 1, dims: Sequence[int] = (0, 1)) -> Array:
    return jnp.rot90(x, k, (dims[0], dims[1]))
