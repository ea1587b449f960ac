"""Windows that slide over the trailing axes of an array, reduced by a sum or a maximum.

`Windows` is torch's pooling geometry (stride, padding, dilation, ceil_mode) in the terms of
lax.reduce_window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import PerPlatform, Unsupported

from ._promotion import weakest


@dataclass(frozen=True)
class Windows:
    """The windows over the last `len(kernel)` axes; `padding` is (low, high) for each axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    sizes: tuple[int, ...]
    out_sizes: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def disjoint(self) -> bool:
        """Whether no element is in two windows and none is padded."""
        return (
            all(s >= k for s, k in zip(self.stride, self.kernel, strict=True))
            and all(pad == (0, 0) for pad in self.padding)
            and all(d == 1 for d in self.dilation)
        )


def windows(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Windows:
    """The geometry of a torch pooling op over axes of these sizes."""
    rank = len(sizes)
    kernel = per_axis(kernel, rank)
    stride = per_axis(stride, rank) if stride else kernel
    padding, dilation = per_axis(padding, rank), per_axis(dilation, rank)
    out_sizes, pads = [], []
    for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        extent = d * (k - 1) + 1
        room = size + 2 * p - extent
        out = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (out - 1) * s >= size + p:
            out -= 1  # the last window would lie in the padding alone
        out_sizes.append(out)
        pads.append((p, max((out - 1) * s + extent - size - p, 0)))
    return Windows(kernel, stride, tuple(pads), dilation, tuple(sizes), tuple(out_sizes))


def even_windows(sizes: Sequence[int], out_sizes: Sequence[int]) -> Windows | None:
    """The windows of adaptive pooling where they are all alike, else None."""
    if any(out == 0 or size % out for size, out in zip(sizes, out_sizes, strict=True)):
        return None
    kernel = [size // out for size, out in zip(sizes, out_sizes, strict=True)]
    return windows(sizes, kernel, kernel, (0,))


def adaptive_bounds(size: int, out: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each window of adaptive pooling starts and ends (exclusive) along one axis."""
    places = np.arange(out)
    return places * size // out, -(-(places + 1) * size // out)


@PerPlatform
def window_sum(x: Array, over: Windows) -> Array:
    """The sum of each window."""
    return lax.reduce_window(x, np.zeros((), x.dtype), lax.add, **window_arguments(x, over))


@PerPlatform
def window_sum_transpose(grad: Array, over: Windows) -> Array:
    """The transpose of `window_sum`: each element gathers from the windows that it is in."""
    shape = jax.ShapeDtypeStruct((*grad.shape[: -over.rank], *over.sizes), grad.dtype)
    return jax.linear_transpose(partial(window_sum, over=over), shape)(grad)[0]


@PerPlatform
def window_max(x: Array, over: Windows) -> Array:
    """The maximum of each window; padding never wins."""
    return lax.reduce_window(x, lowest(x.dtype), lax.max, **window_arguments(x, over))


def lowest(dtype: Any) -> np.ndarray:
    """The identity of the maximum."""
    return np.array(weakest(dtype, largest=True), dtype)


def window_arguments(x: Array, over: Windows) -> dict[str, Any]:
    """`over` as the keyword arguments of lax.reduce_window."""
    lead = x.ndim - over.rank
    return {
        "window_dimensions": (1,) * lead + over.kernel,
        "window_strides": (1,) * lead + over.stride,
        "padding": ((0, 0),) * lead + over.padding,
        "window_dilation": (1,) * lead + over.dilation,
    }


def window_slices(x: Array, axis: int, over: Windows) -> list[Array]:
    """For each place in a window along spatial `axis` of a padded `x`, all windows' elements."""
    dim = x.ndim - over.rank + axis
    stride, reach = over.stride[axis], (over.out_sizes[axis] - 1) * over.stride[axis] + 1
    starts = [place * over.dilation[axis] for place in range(over.kernel[axis])]
    return [lax.slice_in_dim(x, start, start + reach, stride, dim) for start in starts]


def range_sums(x: Array, dim: int, starts: np.ndarray, ends: np.ndarray) -> Array:
    """The sums of x[start:end] along the axis `dim`, which is negative.

    This is no product with a matrix, whose zeros would spread infinities.
    """
    total = jnp.zeros((*x.shape[:dim], len(starts), *x.shape[x.ndim + dim + 1 :]), x.dtype)
    for offset in range(int((ends - starts).max(initial=0))):
        places = np.minimum(starts + offset, np.maximum(ends - 1, 0))
        inside = along(starts + offset < ends, dim, x.ndim)
        total += jnp.where(inside, jnp.take(x, places, dim), 0)
    return total


def along(row: np.ndarray, dim: int, rank: int) -> np.ndarray:
    """`row` along `dim`, in a shape that broadcasts with `rank` dimensions."""
    shape = [1] * rank
    shape[dim] = len(row)
    return row.reshape(shape)


def per_axis(values: Sequence[int], rank: int) -> tuple[int, ...]:
    """torch takes one number for all axes."""
    values = tuple(values)
    if len(values) == 1:
        values *= rank
    if len(values) != rank:
        raise Unsupported(
            f"Its windows have {rank} axes, and {len(values)} values are given for them.",
            "Pass one value, or one for each axis.",
        )
    return values
