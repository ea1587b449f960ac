"""Linear and cubic resizing and their gradients -> one small weight matrix for each axis.

The taps of an output element and their weights are known while tracing. Multiplying each axis with
a matrix of them moves the fewest bytes on a TPU (a tenth of what gathers move). A matrix would
spread infinities over whole rows: an image that has some is resized by gathers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import PerPlatform, Unsupported, lower

from ._interpolation import by_factors, contract, cubic_far, cubic_near, step

aten = torch.ops.aten

# For each output element along one axis: places in the input, and their weights, [taps, size]. An
# element with fewer taps than others has the place behind the last for those that it lacks.
Taps = tuple[np.ndarray, np.ndarray]
_MOST_UNROLLED = 4  # taps


def upsample(
    rank: int,
    taps_of: Callable[..., Taps],
    x: Array,
    output_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
) -> Array:
    bytes_ = rank == 2 and x.dtype == np.uint8
    if bytes_ or taps_of is not cubic:
        scales = _resized(x.shape[-rank:], output_size, scales)
    if bytes_:
        wide = np.dtype(np.float64)
        return _bytes(x, _taps(taps_of, x.shape[-2:], output_size, align_corners, scales, wide))
    dtype, x = x.dtype, _floating(x)
    taps = _taps(taps_of, x.shape[-rank:], output_size, align_corners, scales, x.dtype)
    return resized(x, taps).astype(dtype)


def upsample_backward(
    rank: int,
    taps_of: Callable[..., Taps],
    grad: Array,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
) -> Array:
    dtype, grad = grad.dtype, _floating(grad)
    sizes = input_size[-rank:]
    # Where no axis changes its size, eager's cubic gradient is a copy; its cubic resizing is not.
    if taps_of is linear or (list(sizes) == list(output_size) and taps_of is cubic):
        scales = _resized(sizes, output_size, scales)
    taps = _taps(taps_of, sizes, output_size, align_corners, scales, grad.dtype)
    transposed = [_matrix(t, n).T for t, n in zip(taps, sizes, strict=True)]
    return contract(grad, transposed).astype(dtype)


def linear(size: int, out: int, align: bool, scale: float | None, dtype: np.dtype) -> Taps:
    number = dtype.type
    apart = step(size, out, align, scale, dtype)
    places = np.arange(out, dtype=dtype)
    if align:
        places = places * apart
    else:
        places = np.maximum((places + number(0.5)) * apart - number(0.5), number(0))
    first = np.minimum(places.astype(np.int64), size - 1)
    # Where the axis keeps its size, eager reads an element twice: with a weight of 0, inf is nan.
    second = first if size == out else np.minimum(first + 1, size - 1)
    share = np.clip(places - first, number(0), number(1))
    return np.stack([first, second]), np.stack([1 - share, share])


def cubic(size: int, out: int, align: bool, scale: float | None, dtype: np.dtype) -> Taps:
    number = dtype.type
    places = np.arange(out, dtype=dtype)
    apart = step(size, out, align, scale, dtype)
    places = places * apart if align else (places + number(0.5)) * apart - number(0.5)
    first = np.floor(places)
    taps = np.arange(-1, 3)[:, None]
    weights = _cubic(np.abs(places - first - taps), -0.75)
    return np.clip(first.astype(np.int64) + taps, 0, size - 1), weights


def antialiased(radius: int, kernel: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Taps]:
    """Taps of a kernel that widens with the step, so that shrinking averages what it covers."""

    def taps(size: int, out: int, align: bool, scale: float | None, dtype: np.dtype) -> Taps:
        if size == out and scale is None:
            return np.arange(size)[None], np.ones((1, size), dtype)
        number = dtype.type
        apart = step(size, out, align, scale, dtype)
        widening = np.maximum(apart, number(1))
        centers = apart * (np.arange(out, dtype=dtype) + number(0.5))
        support = number(radius) * widening
        # The casts cut towards zero, as eager's do.
        low = np.maximum((centers - support + number(0.5)).astype(np.int64), 0)
        high = np.minimum((centers + support + number(0.5)).astype(np.int64), size)
        offsets = np.arange(max(int((high - low).max(initial=1)), 1))[:, None]
        weights = kernel(np.abs((offsets + low - centers + number(0.5)) / widening))
        covered = offsets < high - low
        weights = np.where(covered, weights, 0)
        total = weights.sum(0)
        return np.where(covered, low + offsets, size), weights / np.where(total == 0, 1, total)

    return taps


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - x, 0)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    return np.where(x < 1, cubic_near(x, a), np.where(x < 2, cubic_far(x, a), 0))


for _op_name, _rank, _taps_of in (
    ("upsample_linear1d", 1, linear),
    ("upsample_bilinear2d", 2, linear),
    ("upsample_trilinear3d", 3, linear),
    ("upsample_bicubic2d", 2, cubic),
    ("_upsample_bilinear2d_aa", 2, antialiased(1, _triangle)),
    ("_upsample_bicubic2d_aa", 2, antialiased(2, partial(_cubic, a=-0.5))),
):
    _op = getattr(aten, _op_name)
    _upsample = partial(upsample, _rank, _taps_of)
    lower(_op.default)(_upsample)
    lower(_op.vec)(partial(by_factors, _upsample, _rank))
    _backward = getattr(aten, f"{_op_name}_backward").default
    lower(_backward)(partial(upsample_backward, _rank, _taps_of))


def _resized(
    sizes: Sequence[int], out_sizes: Sequence[int], scales: Sequence[float | None]
) -> tuple[float | None, ...]:
    """The scales, but None for axes that keep their size: most of eager's kernels copy them."""
    given = zip(sizes, out_sizes, scales or (None,) * len(sizes), strict=True)
    return tuple(None if size == out else scale for size, out, scale in given)


def _taps(
    taps_of: Callable[..., Taps],
    sizes: Sequence[int],
    out_sizes: Sequence[int],
    align_corners: bool,
    scales: Sequence[float | None],
    dtype: Any,
) -> list[Taps]:
    return [
        taps_of(size, out, align_corners, scale, np.dtype(dtype))
        for size, out, scale in zip(sizes, out_sizes, scales or (None,) * len(sizes), strict=True)
    ]


def _matrix(taps: Taps, size: int) -> np.ndarray:
    places, weights = taps
    matrix = np.zeros((places.shape[1], size + 1), weights.dtype)
    np.add.at(matrix, (np.arange(places.shape[1]), places), weights)
    return matrix[:, :size]


@PerPlatform
def resized(x: Array, taps: Sequence[Taps]) -> Array:
    """By matrices, if all of `x` is finite."""
    sizes = x.shape[x.ndim - len(taps) :]
    matrices = [_matrix(t, n) for t, n in zip(taps, sizes, strict=True)]
    results = (partial(contract, matrices=matrices), partial(by_taps, taps=taps))
    shape = jax.eval_shape(results[0], x).shape
    # Flat results have one layout: XLA would copy one into the layout of the other.
    flat = [lambda x, result=result: result(x).reshape(-1) for result in results]
    is_finite = jnp.abs(x).max(initial=0) < np.inf
    return lax.cond(is_finite, *flat, x).reshape(shape)


def by_taps(x: Array, taps: Sequence[Taps]) -> Array:
    for axis, (places, weights) in enumerate(taps):
        x = _gathered(x, x.ndim - len(taps) + axis, places, weights)
    return x


def _gathered(x: Array, dim: int, places: np.ndarray, weights: np.ndarray) -> Array:
    column = (-1, *[1] * (x.ndim - 1 - dim))
    mode = "fill" if (places == x.shape[dim]).any() else "clip"

    def tap(place: Any, weight: Any) -> Array:
        read = jnp.take(x, place, dim, mode=mode, fill_value=0)
        return read * weight.astype(x.dtype).reshape(column)

    if len(places) <= _MOST_UNROLLED:
        each = zip(places, weights, strict=True)
        return sum((tap(*one) for one in each), start=jnp.zeros((), x.dtype))
    total = jnp.zeros((*x.shape[:dim], places.shape[1], *x.shape[dim + 1 :]), x.dtype)
    rows = jnp.asarray(places), jnp.asarray(weights)
    return lax.fori_loop(0, len(places), lambda i, sum_: sum_ + tap(*(r[i] for r in rows)), total)


def _bytes(x: Array, taps: Sequence[Taps]) -> Array:
    """Eager's fixed point for images of bytes: 16-bit weights, and a rounding after each axis."""
    for axis in reversed(range(len(taps))):
        dim = x.ndim - len(taps) + axis
        weights, bits = _fixed_point(_matrix(taps[axis], x.shape[dim]))
        total = jnp.moveaxis(jnp.tensordot(x.astype(np.int32), weights, (dim, 1)), -1, dim)
        x = jnp.clip((total + (1 << (bits - 1))) >> bits, 0, 255)
    return x.astype(np.uint8)


def _fixed_point(weights: np.ndarray) -> tuple[np.ndarray, int]:
    """int32 weights, and how many bits of them are fractional: as many as keep 15 in all."""
    largest = weights.max(initial=0)
    bits = next((b for b in range(22) if int(0.5 + largest * (2 << b)) >= 1 << 15), 22)
    return np.trunc(weights * (1 << bits) + np.copysign(0.5, weights)).astype(np.int32), bits


def _floating(x: Array) -> Array:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise Unsupported(
            "Eager PyTorch rounds interpolated integers in ways that XLA does not reproduce.",
            "Convert the tensor to float32 first, and round the result.",
        )
    return x.astype(dtypes.accumulation(x.dtype))
