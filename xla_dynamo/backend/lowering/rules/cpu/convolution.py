"""Convolutions on the CPU: by taps where that is faster, and with groups that XLA does not mix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes

from .. import convolution
from ..convolution import Correlate, Settings
from . import taps


@convolution.accumulating.on("cpu")
def accumulating(array: Array) -> Array:
    """float32 for 16-bit floats: XLA:CPU convolves in it anyway, and so rounds once, at the end."""
    return array.astype(dtypes.accumulation(array.dtype))


@convolution.correlate.on("cpu")
def correlate(x: Array, weight: Array, how: Settings) -> Array:
    if taps.pays(x.shape[2:], weight.shape[2:], how.groups):
        return taps.correlate(x, weight, how)
    if taps.pays_for_depthwise(weight.shape, how.groups):
        return taps.depthwise(x, weight, how)
    plain = partial(convolution.correlate.plain, how=how)
    is_mixed = weight.dtype == np.float64 and how.groups > 1
    return _unmixed(plain, x, weight, how.groups) if is_mixed else plain(x, weight)


@convolution.weight_gradient.on("cpu")
def weight_gradient(
    correlation: Correlate, large: Array, result: Array, weight: Array, how: Settings
) -> Array:
    if by_taps(large, weight.shape, how.groups):
        return taps.weight_gradient(large, result, weight.shape, how)
    return convolution.weight_gradient.plain(correlation, large, result, weight, how)


def by_taps(large: Array, weight: Sequence[int], groups: int) -> bool:
    """Whether `taps.weight_gradient` is needed, or faster.

    XLA:CPU's own mixes groups, unless each has one input and one output: nan in one group is nan
    in others. In float64 it takes twice the time. (JAX transposes `taps.depthwise` by itself.)
    """
    if taps.pays_for_depthwise(weight, groups):
        return False
    if groups > 1:
        return (weight[0], weight[1]) != (groups, 1)
    return large.dtype == np.float64 and math.prod(weight[2:]) <= taps.MOST_TAPS


def _unmixed(convolve: Callable[..., Array], x: Array, weight: Array, groups: int) -> Array:
    """With a second channel, of zeros, for groups that have one input, or one output.

    Such groups XLA:CPU mixes in float64: it multiplies the others by zero, so that an infinity in
    one group is nan in all. The outputs matter as they are the inputs of the gradient.
    """
    outputs, inputs = weight.shape[:2]
    if inputs == 1:
        x = _padded(x.reshape(x.shape[0], groups, 1, *x.shape[2:]), axis=2)
        x, weight = x.reshape(x.shape[0], 2 * groups, *x.shape[3:]), _padded(weight, axis=1)
    if outputs != groups:
        return convolve(x, weight)
    out = convolve(x, _padded(weight[:, None], axis=1).reshape(2 * groups, *weight.shape[1:]))
    return out.reshape(out.shape[0], groups, 2, *out.shape[2:])[:, :, 0]


def _padded(array: Array, axis: int) -> Array:
    """`array` with one more element, 0, at the end of `axis`."""
    zero = lax.full((), 0, array.dtype)
    return lax.pad(array, zero, [(0, int(i == axis), 0) for i in range(array.ndim)])
