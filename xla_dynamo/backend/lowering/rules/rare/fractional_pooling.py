"""Fractional max pooling: a gather of every window, and its first maximum.

The caller draws one number in [0, 1) for each axis of each plane, from which the starts of the
windows follow. They are computed in the input's dtype with eager's rounding, which decides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import lower
from xla_dynamo.backend.lowering.rules.max_pooling import (
    first_maximum_or_last_nan,
    scatter_by_index,
)

aten = torch.ops.aten


def fractional_max_pool(
    rank: int, x: Array, kernel_size: Sequence[int], output_size: Sequence[int], samples: Array
) -> tuple[Array, Array]:
    planes, sizes = prod(x.shape[:-rank]), x.shape[-rank:]
    samples = samples.reshape(planes, rank)
    if rank == 2:  # (width, height), but (depth, height, width)
        samples = samples[:, ::-1]
    flat = jnp.zeros((planes, *[1] * (2 * rank)), jnp.int32)
    for axis, (size, kernel, out) in enumerate(zip(sizes, kernel_size, output_size, strict=True)):
        places = _starts(samples[:, axis], size, out, kernel)[:, :, None] + jnp.arange(kernel)
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = out, kernel
        flat = flat * size + places.astype(jnp.int32).reshape(planes, *shape)
    flat = flat.reshape(planes, prod(output_size), prod(kernel_size))
    rows = jnp.arange(planes, dtype=jnp.int32)[:, None, None]
    values = x.reshape(planes, prod(sizes)).at[rows, flat].get(mode="promise_in_bounds")
    place = first_maximum_or_last_nan(values, -1)
    shape = (*x.shape[:-rank], *output_size)
    maxima, indices = (
        jnp.take_along_axis(each, place, -1).reshape(shape) for each in (values, flat)
    )
    return maxima, indices.astype(jnp.int64)


def fractional_max_pool_backward(
    rank: int, grad: Array, x: Array, *sizes_and_indices: Any
) -> Array:
    return scatter_by_index(rank, grad, x, sizes_and_indices[-1])


def _starts(sample: Array, size: int, out: int, kernel: int) -> Array:
    """The starts of the windows on one axis, [planes, out]; the last window is at the end."""
    last = size - kernel
    if out == 1:
        return jnp.full((sample.shape[0], 1), last, jnp.int32)

    def rounded(value: Array) -> Array:
        kind = jnp.finfo(sample.dtype)
        return lax.reduce_precision(value, kind.nexp, kind.nmant)

    number = jnp.arange(out - 1, dtype=sample.dtype)
    alpha = rounded(jnp.asarray(last, sample.dtype) / jnp.asarray(out - 1, sample.dtype))
    ahead = rounded(rounded(number + sample[:, None]) * alpha).astype(jnp.int32)
    starts = ahead - rounded(sample * alpha).astype(jnp.int32)[:, None]
    return jnp.pad(starts, ((0, 0), (0, 1)), constant_values=last)


lower(aten.fractional_max_pool2d.default)(partial(fractional_max_pool, 2))
lower(aten.fractional_max_pool3d.default)(partial(fractional_max_pool, 3))
lower(aten.fractional_max_pool2d_backward.default)(partial(fractional_max_pool_backward, 2))
lower(aten.fractional_max_pool3d_backward.default)(partial(fractional_max_pool_backward, 3))
