"""im2col and col2im: concatenated strided slices, and their transpose.

Patches are cut one axis after the other, so a window of h x w costs h + w slices; PyTorch's own
decompositions gather and scatter single elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import lower

from ._windows import Windows, window_slices, windows

aten = torch.ops.aten


@lower(aten.im2col.default)
def im2col(
    x: Array,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Array:
    return _patches(x, windows(x.shape[-2:], kernel_size, stride, padding, dilation))


@lower(aten.col2im.default)
def col2im(
    x: Array,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Array:
    """Each element is the sum of its copies in the patches."""
    over = windows(output_size, kernel_size, stride, padding, dilation)
    channels = x.shape[-2] // prod(over.kernel)
    image = jax.ShapeDtypeStruct((*x.shape[:-2], channels, *output_size), x.dtype)
    return jax.linear_transpose(partial(_patches, over=over), image)(x)[0]


def _patches(x: Array, over: Windows) -> Array:
    """(..., channels, h, w) to (..., channels x window elements, windows)."""
    lead = x.shape[:-2]
    pads = [(0, 0, 0)] * len(lead) + [(low, high, 0) for low, high in over.padding]
    x = lax.pad(x, np.zeros((), x.dtype), pads)
    x = jnp.stack(window_slices(x, 0, over), -3)
    x = jnp.stack(window_slices(x, 1, over), -3)
    rows, columns = lead[-1] * prod(over.kernel), prod(over.out_sizes)
    return x.reshape(*lead[:-1], rows, columns)
