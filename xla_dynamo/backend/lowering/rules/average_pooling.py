"""Average pooling and its gradients: window sums divided by per-axis counts.

The number of elements of a window is a product of one count per axis, known while tracing. Sums are
in float32 for the 16-bit floats. Adaptive pooling with windows of equal size is plain pooling;
otherwise windows are summed one axis after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import lower

from . import _windows
from ._windows import Windows, windows

aten = torch.ops.aten


def avg_pool(
    rank: int,
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    *divisor: Any,
) -> Array:
    over = windows(x.shape[-rank:], kernel_size, stride, padding, (1,), ceil_mode)
    total = _windows.window_sum(x.astype(dtypes.accumulation(x.dtype)), over)
    return _divide(total, over, padding, *divisor).astype(x.dtype)


def avg_pool_backward(
    rank: int,
    grad: Array,
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    *divisor: Any,
) -> Array:
    over = windows(x.shape[-rank:], kernel_size, stride, padding, (1,), ceil_mode)
    shares = _divide(grad.astype(dtypes.accumulation(x.dtype)), over, padding, *divisor)
    return _windows.window_sum_transpose(shares, over).astype(x.dtype)


def adaptive_avg_pool(rank: int, x: Array, output_size: Sequence[int]) -> Array:
    over = _windows.even_windows(x.shape[-rank:], output_size)
    total = x.astype(dtypes.accumulation(x.dtype))
    if over is not None:
        return _divide(_windows.window_sum(total, over), over).astype(x.dtype)
    for dim in range(-rank, 0):
        total = _averages(total, dim, output_size[dim])
    return total.astype(x.dtype)


def adaptive_avg_pool_backward(rank: int, grad: Array, x: Array) -> Array:
    over = _windows.even_windows(x.shape[-rank:], grad.shape[-rank:])
    total = grad.astype(dtypes.accumulation(x.dtype))
    if over is not None:
        return _windows.window_sum_transpose(_divide(total, over), over).astype(x.dtype)
    for dim in range(-rank, 0):
        total = _averages_transpose(total, dim, x.shape[dim])
    return total.astype(x.dtype)


for _rank in (2, 3):
    for _name, _rule in {
        f"avg_pool{_rank}d": avg_pool,
        f"avg_pool{_rank}d_backward": avg_pool_backward,
        f"_adaptive_avg_pool{_rank}d": adaptive_avg_pool,
        f"_adaptive_avg_pool{_rank}d_backward": adaptive_avg_pool_backward,
    }.items():
        lower(getattr(aten, _name).default)(partial(_rule, _rank))
lower(aten.avg_pool1d.default)(partial(avg_pool, 1))
lower(aten.adaptive_avg_pool1d.default)(partial(adaptive_avg_pool, 1))


def _divide(
    x: Array,
    over: Windows,
    padding: Sequence[int] = (0,),
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Divide `x`, one sum per window, by the number of elements that count in its window."""
    divide = lax.div if jnp.issubdtype(x.dtype, jnp.integer) else jnp.divide
    if divisor_override is not None:
        return divide(x, jnp.full((), divisor_override, x.dtype))
    divisor = np.ones((), np.int64)
    for axis in range(over.rank):
        starts = np.arange(over.out_sizes[axis]) * over.stride[axis] - over.padding[axis][0]
        ends = starts + over.kernel[axis]
        # torch counts its own padding, never what ceil_mode adds beyond it.
        margin = padding[axis % len(padding)] if count_include_pad else 0
        counts = np.minimum(ends, over.sizes[axis] + margin) - np.maximum(starts, -margin)
        divisor = divisor[..., None] * counts
    if divisor.size and (divisor == divisor.flat[0]).all():
        return divide(x, jnp.full((), divisor.flat[0], x.dtype))
    return divide(x, jnp.broadcast_to(divisor.astype(x.dtype), x.shape))


def _averages(x: Array, dim: int, out: int) -> Array:
    """Adaptive average pooling along one axis."""
    starts, ends = _windows.adaptive_bounds(x.shape[dim], out)
    counts = _windows.along(ends - starts, dim, x.ndim)
    return _windows.range_sums(x, dim, starts, ends) / counts.astype(x.dtype)


def _averages_transpose(grad: Array, dim: int, size: int) -> Array:
    """Each element sums the gradients of the windows that contain it, which are adjacent."""
    starts, ends = _windows.adaptive_bounds(size, grad.shape[dim])
    places = np.arange(size)
    first, last = (np.searchsorted(bound, places, "right") for bound in (ends, starts))
    shares = grad / _windows.along(ends - starts, dim, grad.ndim).astype(grad.dtype)
    return _windows.range_sums(shares, dim, first, last)
