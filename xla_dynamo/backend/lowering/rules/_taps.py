"""A correlation over a tiny image -> a sum of matrix products, one for each tap of the kernel.

XLA:CPU has no kernel for images smaller than the filter: 512 channels on 2x2 take it 308 ms,
these products 3 ms. Only pairs of positions that meet inside the image are multiplied. Slices,
products, pads and sums: linear in either operand, so JAX transposes it into the gradients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import jax
from jax import lax

Array = jax.Array

# From here on XLA:CPU's own convolution is as fast (measured at 7x7 with 512 channels).
_LARGEST_IMAGE = 16
_MOST_TAPS = 49


def pays(platform: str, image: Sequence[int], kernel: Sequence[int], groups: int) -> bool:
    """Whether `correlate` is the faster form of a correlation over `image` by `kernel`."""
    small = math.prod(image) <= _LARGEST_IMAGE and math.prod(kernel) <= _MOST_TAPS
    return platform == "cpu" and groups == 1 and small


def correlate(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Array:
    """lax.conv_general_dilated of (N, C, *image) by (O, C, *kernel), without groups."""
    image, kernel = x.shape[2:], weight.shape[2:]
    sizes = [
        (image[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(len(image))
    ]
    axes = [
        list(_meetings(image[i], sizes[i], kernel[i], stride[i], padding[i], dilation[i]))
        for i in range(len(image))
    ]
    total = lax.full((x.shape[0], weight.shape[0], *sizes), 0, x.dtype)
    for meeting in itertools.product(*axes):
        taps, starts, limits, before, after = zip(*meeting, strict=True)
        part = lax.slice(x, (0, 0, *starts), (*x.shape[:2], *limits), (1, 1, *stride))
        product = lax.dot_general(weight[(..., *taps)], part, (((1,), (1,)), ((), ())))
        spread = [(b, a, 0) for b, a in zip(before, after, strict=True)]
        zero = lax.full((), 0, x.dtype)
        total += lax.pad(
            lax.transpose(product, _batch_first(x.ndim)), zero, [(0, 0, 0), (0, 0, 0), *spread]
        )
    return total


def _meetings(
    image: int, size: int, kernel: int, stride: int, padding: int, dilation: int
) -> Iterator[tuple[int, int, int, int, int]]:
    """For each tap of one axis that meets the image: tap, input slice, output margins."""
    for tap in range(kernel):
        offset = tap * dilation - padding
        first = max(0, -(offset // stride))
        last = min(size - 1, (image - 1 - offset) // stride)
        if first <= last:
            yield (
                tap,
                first * stride + offset,
                last * stride + offset + 1,
                first,
                size - 1 - last,
            )


def _batch_first(rank: int) -> tuple[int, ...]:
    return (1, 0, *range(2, rank))
