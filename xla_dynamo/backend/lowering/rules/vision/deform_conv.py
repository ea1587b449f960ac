"""deform_conv2d and its gradients: each weight multiplies a pixel at an offset of its own.

The pixels are sampled bilinearly, zeros outside of the image, and a grouped product sums them.
Gradients are JAX's of this formula.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import lower
from xla_dynamo.backend.lowering.rules.grid_sampling import linear_taps, weighted_sum


@lower("torchvision.deform_conv2d.default")
def deform_conv2d(
    x: Array, weight: Array, offset: Array, mask: Array, bias: Array, *settings: int
) -> Array:
    """settings: stride, padding and dilation, each (y, x); groups, groups of offsets, use_mask."""
    *window, groups, offset_groups, use_mask = settings
    operands = (x, weight, offset, mask, bias)
    x, weight, offset, mask, bias = (a.astype(dtypes.accumulation(a.dtype)) for a in operands)
    batch, (outputs, _, *kernel) = x.shape[0], weight.shape
    plane = offset.shape[2:]
    # Each group of offsets is an image of its own.
    moved = offset.reshape(batch * offset_groups, *kernel, 2, *plane)
    taps = []
    for axis, size in enumerate(plane):
        stride, padding, dilation = window[axis::2]
        along = jnp.arange(kernel[axis]) * dilation - padding
        across = jnp.arange(size) * stride
        shape = [1] * 4
        shape[axis], shape[2 + axis] = kernel[axis], size
        grid = (along[:, None] + across).reshape(shape)
        position = grid + moved[:, :, :, axis]
        taps.append(linear_taps(position.reshape(moved.shape[0], prod(kernel), prod(plane))))
    channels = x.shape[1]
    split = x.reshape(batch * offset_groups, channels // offset_groups, *x.shape[2:])
    pixels = weighted_sum(split, taps)  # [N * groups, C / groups, KH * KW, OH * OW]
    if use_mask:
        pixels = pixels * mask.reshape(batch * offset_groups, 1, prod(kernel), prod(plane))
    pixels = pixels.reshape(batch, groups, channels // groups, *kernel, *plane)
    weights = weight.reshape(groups, outputs // groups, channels // groups, *kernel)
    result = jnp.einsum("ngcklyx,gockl->ngoyx", pixels, weights)
    return result.reshape(batch, outputs, *plane) + bias[:, None, None]


@lower("torchvision._deform_conv2d_backward.default")
def deform_conv2d_backward(
    grad: Array,
    x: Array,
    weight: Array,
    offset: Array,
    mask: Array,
    bias: Array,
    *settings: int,
) -> tuple[Array, ...]:
    def forward(*tensors: Any) -> Array:
        return deform_conv2d(*tensors, *settings)

    result, pull = jax.vjp(forward, x, weight, offset, mask, bias)
    return pull(grad.astype(result.dtype))
