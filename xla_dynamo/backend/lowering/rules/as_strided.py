"""as_strided: a view of a contiguous storage with other strides.

Nested strides, as slices, transposes and expansions have them, become slices, reshapes, transposes
and broadcasts. Others (overlapping windows) become a gather by indices computed from iotas.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.graph import memory_layout
from xla_dynamo.backend.lowering.registry import lower

aten = torch.ops.aten


@lower(aten.as_strided.default, aten.as_strided_copy.default)
def as_strided(
    x: Array, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Array:
    flat, start = x.reshape(-1), offset or 0
    if 0 in size:
        return jnp.zeros(size, x.dtype)
    moving = [d for d in range(len(size)) if size[d] > 1 and stride[d] > 0]
    moving.sort(key=lambda d: -stride[d])
    sizes, strides = [size[d] for d in moving], [stride[d] for d in moving]
    if _nested(sizes, strides):
        dense = _nested_view(flat, sizes, strides, start)
    else:
        dense = flat.at[flat_index(sizes, strides, start)].get(mode="promise_in_bounds")
    # Restore the order of the dims, and broadcast those of size 1 or stride 0.
    dense = lax.transpose(dense, [moving.index(d) for d in sorted(moving)])
    return lax.broadcast_in_dim(dense, tuple(size), sorted(moving))


@lower(aten.as_strided_scatter.default)
def as_strided_scatter(
    x: Array, source: Array, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Array:
    flat, start = x.reshape(-1), offset or 0
    source = jnp.broadcast_to(source.astype(x.dtype), tuple(size))
    if source.size == 0:
        return x
    if tuple(stride) == memory_layout.row_major(size):
        result = lax.dynamic_update_slice_in_dim(flat, source.reshape(-1), start, 0)
    else:
        result = flat.at[flat_index(size, stride, start)].set(source, mode="promise_in_bounds")
    return result.reshape(x.shape)


def flat_index(size: Sequence[int], stride: Sequence[int], offset: int) -> Array:
    """The storage index of each element of a strided view."""
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    dtype = np.int32 if last < 2**31 else np.int64
    index = jnp.full(size, offset, dtype)
    for dim, step in enumerate(stride):
        index += lax.broadcasted_iota(dtype, size, dim) * step
    return index


def _nested(sizes: list[int], strides: list[int]) -> bool:
    """Whether the extent of each dim fits into one step of the dim before it."""
    outer_and_inner = zip(strides[:-1], strides[1:], sizes[1:], strict=True)
    return all(outer % inner == 0 and n * inner <= outer for outer, inner, n in outer_and_inner)


def _nested_view(flat: Array, sizes: list[int], strides: list[int], offset: int) -> Array:
    """Slice and reshape, from the dim with the largest stride to that with the smallest."""
    if not sizes:
        return flat[offset]
    extent = sizes[0] * strides[0]
    run = lax.slice_in_dim(flat, offset, min(offset + extent, flat.size))
    if run.size < extent:
        # The storage may end before the last row does; the padding is never read.
        run = lax.pad(run, jnp.zeros((), flat.dtype), [(0, extent - run.size, 0)])
    for dim, (n, step) in enumerate(zip(sizes, strides, strict=True)):
        head = lax.slice_in_dim(run, 0, n * step, axis=dim)
        run = head.reshape(*head.shape[:dim], n, step)
    return run[..., 0]
