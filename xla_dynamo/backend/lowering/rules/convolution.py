"""aten.convolution and its gradients -> lax.conv_general_dilated and its own transposes.

Everything is one bilinear function, `correlate`: the strided, padded, dilated, grouped correlation
that aten calls convolution, in torch's layout (batch, channels, *spatial). A transposed
convolution is its transpose in the input; each gradient is it or one of its transposes. JAX's
transpose rules give the convolutions that XLA has kernels for (base dilation for the input,
swapped batch and feature with batch_group_count for the weight), and nothing is unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import PerPlatform, lower

from ._promotion import is_inexact
from ._windows import per_axis

aten = torch.ops.aten

Correlate = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Settings:
    """How a kernel moves over an image, axis by axis, and in how many groups of channels."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int


@lower(aten.convolution.default)
def convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    """Any rank and any grouping; the bias is added after, for XLA to fuse."""
    rank = x.ndim - 2
    x, weight = accumulating(x), accumulating(weight)
    stride, padding, dilation = (per_axis(v, rank) for v in (stride, padding, dilation))
    how = Settings(stride, padding, dilation, groups)
    if transposed:
        out = _transposed(x, weight, how, per_axis(output_padding, rank))
    else:
        out = correlate(x, weight, how)
    return out if bias is None else out + bias.reshape(-1, *[1] * rank)


@lower(aten._convolution.default, aten._convolution.deprecated)
def convolution_by_library(*arguments: Any) -> Array:
    """What follows the nine arguments of `convolution` picks a library's algorithm."""
    return convolution(*arguments[:9])


@lower(aten.conv_tbc.default)
def convolution_of_sequences(x: Array, weight: Array, bias: Array, pad: int = 0) -> Array:
    """Over time, with `x` (time, batch, channels) and `weight` (time, in, out)."""
    settings = ([1], [pad], [1], False, [0], 1)
    x, weight = x.transpose(1, 2, 0), weight.transpose(2, 1, 0)
    return convolution(x, weight, bias, *settings).transpose(2, 0, 1)


@lower(aten.convolution_backward.default)
def convolution_backward(
    grad: Array,
    x: Array,
    weight: Array,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Array | None, Array | None, Array | None]:
    """A transposed convolution's gradients are the plain one's, with `grad` as its input."""
    rank = x.ndim - 2
    grad, x, weight = map(accumulating, (grad, x, weight))
    stride, padding, dilation = (per_axis(v, rank) for v in (stride, padding, dilation))
    how = Settings(stride, padding, dilation, groups)
    small = x if transposed else grad
    correlation = _cut_correlation(small.shape[2:], how)
    grad_x = grad_weight = grad_bias = None
    if output_mask[0]:
        if transposed:
            grad_x = correlation(grad, weight)
        else:
            (grad_x,) = jax.linear_transpose(lambda y: correlation(y, weight), x)(grad)
    if output_mask[1]:
        large, result = (grad, x) if transposed else (x, grad)
        grad_weight = weight_gradient(correlation, large, result, weight, how)
    if output_mask[2]:
        axes = (0, *range(2, grad.ndim))
        grad_bias = jnp.sum(grad, axes, dtype=dtypes.accumulation(grad.dtype))
    return grad_x, grad_weight, grad_bias


@PerPlatform
def accumulating(array: Array) -> Array:
    """An operand in the dtype in which it is convolved."""
    return array


@PerPlatform
def correlate(x: Array, weight: Array, how: Settings) -> Array:
    return lax.conv_general_dilated(
        x,
        weight,
        window_strides=how.stride,
        padding=[(p, p) for p in how.padding],
        rhs_dilation=how.dilation,
        feature_group_count=how.groups,
    )


@PerPlatform
def weight_gradient(
    correlation: Correlate, large: Array, result: Array, weight: Array, how: Settings
) -> Array:
    """The gradient of the weight of `correlation`, from `result`, that of what `large` gave."""
    return jax.linear_transpose(partial(correlation, large), weight)(result)[0]


def _cut_correlation(sizes: Sequence[int], how: Settings) -> Correlate:
    """The bilinear map (input, weight) -> output, its output cut to `sizes`.

    Only a transposed convolution whose output padding reaches the stride needs the cut.
    """

    def correlation(x: Array, weight: Array) -> Array:
        out = correlate(x, weight, how)
        if out.shape[2:] == tuple(sizes):
            return out
        return lax.slice(out, (0,) * out.ndim, (*out.shape[:2], *sizes))

    return correlation


def _transposed(x: Array, weight: Array, how: Settings, extra: Sequence[int]) -> Array:
    inputs, outputs, *kernel = weight.shape
    axes = list(zip(x.shape[2:], kernel, how.stride, how.padding, how.dilation, extra, strict=True))
    if is_inexact(x.dtype):
        sizes = [(n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in axes]
        large = jax.ShapeDtypeStruct((x.shape[0], outputs * how.groups, *sizes), x.dtype)
        correlation = _cut_correlation(x.shape[2:], how)
        return jax.linear_transpose(lambda y: correlation(y, weight), large)(x)[0]
    # JAX neither differentiates nor transposes a convolution of integers.
    weight = weight.reshape(how.groups, inputs // how.groups, outputs, *kernel).swapaxes(1, 2)
    weight = weight.reshape(how.groups * outputs, inputs // how.groups, *kernel)
    margins = [(d * (k - 1) - p, d * (k - 1) - p + e) for _, k, _, p, d, e in axes]
    return lax.conv_general_dilated(
        x,
        lax.rev(weight, range(2, weight.ndim)),
        window_strides=[1] * len(kernel),
        padding=margins,
        lhs_dilation=how.stride,
        rhs_dilation=how.dilation,
        feature_group_count=how.groups,
    )
