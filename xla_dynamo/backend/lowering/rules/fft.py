"""Discrete Fourier transforms by jax.numpy.fft.

PyTorch's ops are unscaled both ways, with the scale as a mode: 0 for none, 1 for 1/sqrt(n), 2 for
1/n. NumPy's names for the same scales depend on the direction.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jax import Array
from jax import numpy as jnp

from xla_dynamo.backend.lowering.registry import lower

aten = torch.ops.aten


# By PyTorch's number: the scale's name in a forward and in an inverse transform.
_FORWARD, _INVERSE = ("backward", "ortho", "forward"), ("forward", "ortho", "backward")


@lower(aten._fft_c2c.default)
def fft_c2c(x: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    if forward:
        return jnp.fft.fftn(x, axes=dim, norm=_FORWARD[normalization])
    return jnp.fft.ifftn(x, axes=dim, norm=_INVERSE[normalization])


@lower(aten._fft_r2c.default)
def fft_r2c(x: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    transform = jnp.fft.rfftn if onesided else jnp.fft.fftn
    return transform(x, axes=dim, norm=_FORWARD[normalization])


@lower(aten._fft_c2r.default)
def fft_c2r(x: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    sizes = [*(x.shape[d] for d in dim[:-1]), last_dim_size]
    return jnp.fft.irfftn(x, sizes, dim, norm=_INVERSE[normalization])
