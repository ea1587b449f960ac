"""Correlations as sums over the taps of the kernel, where XLA:CPU has no good kernel for them.

XLA:CPU takes 308 ms for 512 channels on an image of 2x2, smaller than the filter; a sum of matrix
products, of the pairs of positions that meet inside the image, takes 3 ms. It takes 7.9 ms for a
depthwise correlation of 32 channels of 28x28 by 3x3; a fused sum of products takes 0.3 ms. Both
sums consist of slices, products and pads, which are linear in either operand, so JAX transposes
them into the gradients. The gradient of a grouped weight is one product for each tap, of all groups
at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import jax.numpy as jnp
from jax import Array, lax

from ..convolution import Settings

# From here on XLA:CPU's own convolution is as fast (measured at 7x7 with 512 channels).
_LARGEST_IMAGE = 16
MOST_TAPS = 49


def pays(image: Sequence[int], kernel: Sequence[int], groups: int) -> bool:
    """Whether `correlate` is the faster form of a correlation over `image` by `kernel`."""
    return groups == 1 and math.prod(image) <= _LARGEST_IMAGE and math.prod(kernel) <= MOST_TAPS


def pays_for_depthwise(weight: Sequence[int], groups: int) -> bool:
    """Whether `depthwise` is the faster form of a correlation in `groups` by `weight`."""
    return groups > 1 == weight[1] and math.prod(weight[2:]) <= MOST_TAPS


def depthwise(x: Array, weight: Array, how: Settings) -> Array:
    """lax.conv_general_dilated of (N, C, *image) by (C * m, 1, *kernel), in C groups."""
    batch, channels, *image = x.shape
    outputs, _, *kernel = weight.shape
    x, sizes = _padded(x, how), _sizes(image, kernel, how)
    weight = weight.reshape(channels, outputs // channels, *kernel, *[1] * len(kernel))
    products = [
        _met(x, tap, sizes, how)[:, :, None] * weight[(slice(None), slice(None), *tap)]
        for tap in itertools.product(*map(range, kernel))
    ]
    return sum(products[1:], products[0]).reshape(batch, outputs, *sizes)


def _padded(x: Array, how: Settings) -> Array:
    """`x`, (N, C, *image), with zeros around each image."""
    zero = lax.full((), 0, x.dtype)
    return lax.pad(x, zero, [(0, 0, 0), (0, 0, 0), *((p, p, 0) for p in how.padding)])


def _sizes(image: Sequence[int], kernel: Sequence[int], how: Settings) -> list[int]:
    """The sizes of the result for one image."""
    axes = zip(image, kernel, how.stride, how.padding, how.dilation, strict=True)
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes]


def _met(x: Array, tap: Sequence[int], sizes: Sequence[int], how: Settings) -> Array:
    """The elements of a padded image that one tap of the dilated kernel meets."""
    starts = [t * d for t, d in zip(tap, how.dilation, strict=True)]
    reach = zip(starts, sizes, how.stride, strict=True)
    limits = [start + (size - 1) * s + 1 for start, size, s in reach]
    return lax.slice(x, (0, 0, *starts), (*x.shape[:2], *limits), (1, 1, *how.stride))


def weight_gradient(x: Array, grad: Array, weight: Sequence[int], how: Settings) -> Array:
    """The gradient of a weight of shape `weight`; `grad` is the gradient of the correlation."""

    def by_group(array: Array) -> Array:
        """(batch, channels, *image) as (groups, channels of one, places)."""
        batch, channels, groups = *array.shape[:2], how.groups
        split = array.reshape(batch, groups, channels // groups, math.prod(array.shape[2:]))
        return lax.transpose(split, (1, 2, 0, 3)).reshape(groups, channels // groups, -1)

    x = _padded(x, how)
    grads, products = by_group(grad), []
    for tap in itertools.product(*map(range, weight[2:])):
        part = by_group(_met(x, tap, grad.shape[2:], how))
        products.append(lax.dot_general(grads, part, (((2,), (2,)), ((0,), (0,)))))
    return jnp.stack(products, -1).reshape(tuple(weight))


def correlate(x: Array, weight: Array, how: Settings) -> Array:
    """lax.conv_general_dilated of (N, C, *image) by (O, C, *kernel), without groups."""
    image, kernel = x.shape[2:], weight.shape[2:]
    sizes = _sizes(image, kernel, how)
    axes = zip(image, sizes, kernel, how.stride, how.padding, how.dilation, strict=True)
    zero = lax.full((), 0, x.dtype)
    total = lax.full((x.shape[0], weight.shape[0], *sizes), 0, x.dtype)
    for meeting in itertools.product(*(list(_meetings(*axis)) for axis in axes)):
        taps, starts, limits, before, after = zip(*meeting, strict=True)
        part = lax.slice(x, (0, 0, *starts), (*x.shape[:2], *limits), (1, 1, *how.stride))
        product = lax.dot_general(weight[(..., *taps)], part, (((1,), (1,)), ((), ())))
        spread = [(b, a, 0) for b, a in zip(before, after, strict=True)]
        total += lax.pad(jnp.swapaxes(product, 0, 1), zero, [(0, 0, 0), (0, 0, 0), *spread])
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
            start, stop = first * stride + offset, last * stride + offset + 1
            yield tap, start, stop, first, size - 1 - last
