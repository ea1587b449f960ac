"""aten.convolution and its gradients -> lax.conv_general_dilated and its own transposes.

Everything is one bilinear function, `_correlate`: the strided, padded, dilated, grouped correlation
that aten calls convolution, in torch's layout (batch, channels, *spatial). A transposed
convolution is its transpose in the input; each gradient is it or one of its transposes. JAX's
transpose rules give the convolutions that XLA has kernels for (base dilation for the input,
swapped batch and feature with batch_group_count for the weight), and nothing is unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import Unsupported, lower, platform

from . import _taps
from ._promotion import is_inexact

aten = torch.ops.aten

Array = jax.Array
Correlate = Callable[[Array, Array], Array]


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
    x, weight = _accumulating(x), _accumulating(weight)
    stride, padding, dilation = (_per_axis(v, rank) for v in (stride, padding, dilation))
    if transposed and not is_inexact(x.dtype):
        extra = _per_axis(output_padding, rank)
        out = _transposed(x, weight, stride, padding, dilation, extra, groups)
    elif transposed:
        extra = _per_axis(output_padding, rank)
        sizes = [
            (x.shape[2 + i] - 1) * stride[i]
            - 2 * padding[i]
            + dilation[i] * (weight.shape[2 + i] - 1)
            + extra[i]
            + 1
            for i in range(rank)
        ]
        correlate = _correlation(x.shape[2:], stride, padding, dilation, groups)
        large = jax.ShapeDtypeStruct((x.shape[0], weight.shape[1] * groups, *sizes), x.dtype)
        (out,) = jax.linear_transpose(lambda y: correlate(y, weight), large)(x)
    else:
        out = _correlation(None, stride, padding, dilation, groups)(x, weight)
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
    grad, x, weight = map(_accumulating, (grad, x, weight))
    stride, padding, dilation = (_per_axis(v, rank) for v in (stride, padding, dilation))
    small = x if transposed else grad
    correlate = _correlation(small.shape[2:], stride, padding, dilation, groups)
    grad_x = grad_weight = grad_bias = None
    if output_mask[0]:
        if transposed:
            grad_x = correlate(grad, weight)
        else:
            (grad_x,) = jax.linear_transpose(lambda y: correlate(y, weight), x)(grad)
    if output_mask[1]:
        large, result = (grad, x) if transposed else (x, grad)
        if _taps.pays_for_weight(platform.get(), large, weight.shape, groups):
            settings = (stride, padding, dilation, groups)
            grad_weight = _taps.weight_gradient(large, result, weight.shape, *settings)
        else:
            (grad_weight,) = jax.linear_transpose(partial(correlate, large), weight)(result)
    if output_mask[2]:
        axes = (0, *range(2, grad.ndim))
        grad_bias = jnp.sum(grad, axes, dtype=dtypes.accumulation(grad.dtype))
    return grad_x, grad_weight, grad_bias


def _correlation(
    sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Correlate:
    """The bilinear map (input, weight) -> output, its output cut to `sizes` where given.

    Only a transposed convolution whose output padding reaches the stride needs the cut.
    """

    def correlate(x: Array, weight: Array) -> Array:
        if _taps.pays(platform.get(), x.shape[2:], weight.shape[2:], groups):
            out = _taps.correlate(x, weight, stride, padding, dilation)
        elif _taps.pays_for_depthwise(platform.get(), weight.shape, groups):
            out = _taps.depthwise(x, weight, stride, padding, dilation)
        else:
            convolve = partial(
                lax.conv_general_dilated,
                window_strides=stride,
                padding=[(p, p) for p in padding],
                rhs_dilation=dilation,
                feature_group_count=groups,
            )
            mixes = platform.get() == "cpu" and weight.dtype == np.float64 and groups > 1
            out = _unmixed(convolve, x, weight, groups) if mixes else convolve(x, weight)
        if sizes is None or out.shape[2:] == tuple(sizes):
            return out
        return lax.slice(out, (0,) * out.ndim, (*out.shape[:2], *sizes))

    return correlate


def _unmixed(convolve: Correlate, x: Array, weight: Array, groups: int) -> Array:
    """With a second channel, of zeros, for groups that have one input, or one output.

    XLA:CPU mixes such groups in float64, by weights of zero: infinity of one is nan in the others.
    The outputs are the inputs of the transpose, that is of the gradient.
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
    """With one zero more, at the end of `axis`."""
    zero = lax.full((), 0, array.dtype)
    return lax.pad(array, zero, [(0, int(i == axis), 0) for i in range(array.ndim)])


def _accumulating(array: Array) -> Array:
    """For 16-bit floats on a CPU float32, in which XLA:CPU convolves anyway: one rounding, last."""
    if platform.get() != "cpu":
        return array
    return array.astype(dtypes.accumulation(array.dtype))


def _transposed(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    extra: Sequence[int],
    groups: int,
) -> Array:
    """A transposed convolution of integers, which JAX does not differentiate nor transpose."""
    inputs, outputs, *kernel = weight.shape
    weight = weight.reshape(groups, inputs // groups, outputs, *kernel).swapaxes(1, 2)
    weight = weight.reshape(groups * outputs, inputs // groups, *kernel)
    before = [d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    return lax.conv_general_dilated(
        x,
        lax.rev(weight, range(2, weight.ndim)),
        window_strides=[1] * len(kernel),
        padding=[(b, b + e) for b, e in zip(before, extra, strict=True)],
        lhs_dilation=stride,
        rhs_dilation=dilation,
        feature_group_count=groups,
    )


def _per_axis(values: Sequence[int], rank: int) -> list[int]:
    """aten takes one number for all axes."""
    values = list(values)
    if len(values) == 1:
        values *= rank
    if len(values) != rank:
        raise Unsupported(f"a convolution over {rank} axes with {len(values)} settings")
    return values
