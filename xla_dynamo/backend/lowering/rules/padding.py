"""Padding and its gradients: lax.pad, or the input concatenated with mirrored or repeated slices.

Reflection and replication extend one axis after the other; their gradients are the transposes,
sums of slices rather than scatters. A negative pad crops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import lower

aten = torch.ops.aten

# (array, axis, count) -> the border before (count > 0) or after (count < 0) the array on that axis.
Border = Callable[[Array, int, int], Array]


@lower(aten.constant_pad_nd.default)
def constant_pad_nd(x: Array, pad: Sequence[int], value: complex = 0) -> Array:
    config = [(0, 0, 0)] * x.ndim
    for axis, (low, high) in _axes(x, pad):
        config[axis] = (low, high, 0)
    return lax.pad(x, jnp.asarray(value).astype(x.dtype), config)


def bordered(border: Border, x: Array, padding: Sequence[int]) -> Array:
    for axis, (low, high) in _axes(x, padding):
        before = [border(x, axis, low)] if low > 0 else []
        after = [border(x, axis, -high)] if high > 0 else []
        x = lax.concatenate([*before, x, *after], axis) if before or after else x
        # A crop goes last: beyond the other end, it cuts into the border.
        x = lax.slice_in_dim(x, max(-low, 0), x.shape[axis] + min(high, 0), axis=axis)
    return x


def bordered_backward(border: Border, grad: Array, x: Array, padding: Sequence[int]) -> Array:
    extend = partial(bordered, border, padding=padding)
    return jax.linear_transpose(extend, jax.ShapeDtypeStruct(x.shape, grad.dtype))(grad)[0]


def _reflection(x: Array, axis: int, count: int) -> Array:
    """The mirror image of what lies next to the edge, without the edge itself."""
    size = x.shape[axis]
    start, stop = (1, 1 + count) if count > 0 else (size - 1 + count, size - 1)
    return lax.rev(lax.slice_in_dim(x, start, stop, axis=axis), (axis,))


def _replication(x: Array, axis: int, count: int) -> Array:
    """Copies of the edge."""
    size = x.shape[axis]
    start, stop = (0, 1) if count > 0 else (size - 1, size)
    edge = lax.slice_in_dim(x, start, stop, axis=axis)
    return jnp.broadcast_to(edge, (*x.shape[:axis], abs(count), *x.shape[axis + 1 :]))


for _name, _border in (("reflection_pad", _reflection), ("replication_pad", _replication)):
    for _rank in (1, 2, 3):
        lower(getattr(aten, f"{_name}{_rank}d").default)(partial(bordered, _border))
        _backward = getattr(aten, f"{_name}{_rank}d_backward").default
        lower(_backward)(partial(bordered_backward, _border))


def _axes(x: Array, padding: Sequence[int]) -> list[tuple[int, tuple[int, int]]]:
    """(axis, (low, high)) of each padded axis; torch lists them from the last axis on."""
    pairs = np.asarray(padding, int).reshape(-1, 2).tolist()
    return [(x.ndim - 1 - i, (low, high)) for i, (low, high) in enumerate(pairs)]
