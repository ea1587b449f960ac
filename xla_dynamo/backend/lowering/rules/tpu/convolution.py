"""Convolutions on TPUs, whose tiles are of eight rows by 128 lanes.

An image's few channels fill little of a tile: where windows lie side by side, as patches do, their
rows are made channels. The gradient of a 1x1 weight comes out with the weight's rows as rows: as
JAX transposes a convolution they are the lanes, and the weight, its momentum and both new ones are
transposed for the update. Measured with libtpu 0.0.42.1 on v5e, forward, backward and SGD:

    patches of 16x16, of 8 images of 224x224    553k cycles, 262 MB    264k, 137 MB
    two 1x1 convolutions in bfloat16            211k                   133k
    the same in float32, results as rows        852k                   200k
"""

from __future__ import annotations

import math

from jax import Array, lax

from .. import convolution
from ..convolution import Correlate, Settings

_FEW = 8  # channels that leave most of a tile empty


@convolution.correlate.on("tpu")
def correlate(x: Array, weight: Array, how: Settings) -> Array:
    if not _is_of_patches(x, weight, how):
        return convolution.correlate.plain(x, weight, how)
    (*sizes, last), (*kernel, width) = x.shape[2:], weight.shape[2:]
    counts = [size // rows for size, rows in zip(sizes, kernel, strict=True)]
    split = [part for pair in zip(counts, kernel, strict=True) for part in pair]
    x = x.reshape(*x.shape[:2], *split, last)
    x = x.transpose(0, 1, *range(3, x.ndim - 1, 2), *range(2, x.ndim - 1, 2), x.ndim - 1)
    channels, ones = math.prod(weight.shape[1:-1]), [1] * len(kernel)
    x = x.reshape(len(x), channels, *counts, last)
    weight = weight.reshape(len(weight), channels, *ones, width)
    return lax.conv_general_dilated(x, weight, (*ones, width), "VALID")


@convolution.weight_gradient.on("tpu")
def weight_gradient(
    correlation: Correlate, large: Array, result: Array, weight: Array, how: Settings
) -> Array:
    if math.prod(weight.shape[2:]) > 1 or how.groups > 1 or any(how.padding):
        return convolution.weight_gradient.plain(correlation, large, result, weight, how)
    places = zip(result.shape[2:], how.stride, strict=True)
    large = large[:, :, *(slice(None, size * step, step) for size, step in places)]
    axes = tuple(range(large.ndim))
    by_channel = (1, 0, *axes[2:])  # what is summed over are the samples, and each place
    numbers = lax.ConvDimensionNumbers(by_channel, by_channel, axes)
    ones = [1] * len(how.stride)
    return lax.conv_general_dilated(result, large, ones, "VALID", dimension_numbers=numbers)


def _is_of_patches(x: Array, weight: Array, how: Settings) -> bool:
    """Whether windows lie side by side in an image of two dimensions or more, of few channels."""
    sizes, kernel = x.shape[2:-1], weight.shape[2:]
    if how.groups > 1 or any(how.padding) or tuple(kernel) != tuple(how.stride):
        return False
    is_whole = all(size % rows == 0 for size, rows in zip(sizes, kernel[:-1], strict=True))
    return is_whole and x.shape[1] <= _FEW and math.prod(kernel[:-1]) > 1
