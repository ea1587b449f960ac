"""Nearest-neighbour resizing and its gradients: broadcasts and window sums, or static gathers.

Where an axis grows by an integer factor, each element is broadcast over its copies; the gradient
sums windows of that size. Any other resizing gathers one input element for each output; its
gradient gathers, for each input element, the gradients of all its copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import lower

from ._interpolation import by_factors, step
from ._windows import range_sums, window_sum, windows

aten = torch.ops.aten


def upsample_nearest(
    rank: int, exact: bool, x: Array, output_size: Sequence[int], *scales: float | None
) -> Array:
    for axis, size in enumerate(output_size):
        scale = scales[axis] if scales else None
        dim = x.ndim - rank + axis
        sources = _sources(x.shape[dim], size, scale, exact, ignores_scale=rank == 2)
        factor = _factor(sources, x.shape[dim])
        if factor == 1:
            continue
        if factor:
            shape = (*x.shape[: dim + 1], factor, *x.shape[dim + 1 :])
            kept = [i for i in range(x.ndim + 1) if i != dim + 1]
            x = lax.broadcast_in_dim(x, shape, kept)
            x = x.reshape(*shape[:dim], size, *shape[dim + 2 :])
        else:
            x = jnp.take(x, sources, dim, mode="clip")
    return x


def upsample_nearest_backward(
    rank: int,
    exact: bool,
    grad: Array,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
) -> Array:
    dtype, grad = grad.dtype, grad.astype(dtypes.accumulation(grad.dtype))
    sizes = input_size[-rank:]
    sources = [
        _sources(size, out, scale, exact, ignores_scale=True)
        for size, out, scale in zip(sizes, output_size, scales or (None,) * rank, strict=True)
    ]
    factors = [_factor(s, size) for s, size in zip(sources, sizes, strict=True)]
    if all(factors):
        return window_sum(grad, windows(output_size, factors, factors, (0,))).astype(dtype)
    for axis, (source, size) in enumerate(zip(sources, sizes, strict=True)):
        counts = np.bincount(source, minlength=size)
        ends = np.cumsum(counts)  # the copies of an element are adjacent
        grad = range_sums(grad, axis - rank, ends - counts, ends)
    return grad.astype(dtype)


for _rank in (1, 2, 3):
    for _name, _exact in (("upsample_nearest", False), ("_upsample_nearest_exact", True)):
        _op = getattr(aten, f"{_name}{_rank}d")
        _upsample = partial(upsample_nearest, _rank, _exact)
        lower(_op.default)(_upsample)
        lower(_op.vec)(partial(by_factors, _upsample, _rank))
        _backward = getattr(aten, f"{_name}{_rank}d_backward").default
        lower(_backward)(partial(upsample_nearest_backward, _rank, _exact))


def _sources(
    size: int, out: int, scale: float | None, exact: bool, *, ignores_scale: bool
) -> np.ndarray:
    """The input element of each output element along one axis, in eager's float32 arithmetic.

    ignores_scale: an output of the same or twice the size copies elements, whatever the scale. So
    do eager's kernels in two dimensions, and all gradients.
    """
    if ignores_scale and not exact and out in (size, 2 * size):
        return np.arange(out) // (out // max(size, 1) or 1)
    places = np.arange(out, dtype=np.float32)
    if exact:
        places = places + np.float32(0.5)
    sources = np.floor(places * step(size, out, False, scale, np.dtype(np.float32)))
    return np.minimum(sources.astype(np.int64), size - 1)


def _factor(sources: np.ndarray, size: int) -> int:
    """The number of copies of each element, if it is the same for all; else 0."""
    factor = len(sources) // max(size, 1)
    same = factor * size == len(sources) and (sources == np.arange(len(sources)) // factor).all()
    return factor if factor and same else 0
