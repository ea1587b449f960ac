"""Discrete Fourier transforms by lax.fft, which transforms up to three innermost dimensions.

PyTorch's ops are unscaled both ways, with the scale as a mode: 0 for none, 1 for 1/sqrt(n), 2 for
1/n. XLA scales its inverse transforms by 1/n; both scales are combined into one factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jax import Array, lax
from jax import numpy as jnp

from xla_dynamo.backend.lowering.registry import lower

aten = torch.ops.aten


@lower(aten._fft_c2c.default)
def fft_c2c(x: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    kind = lax.FftType.FFT if forward else lax.FftType.IFFT
    return _complex(x, dim, kind) * _scale(x, dim, normalization, inverse=not forward)


@lower(aten._fft_r2c.default)
def fft_r2c(x: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    scale = _scale(x, dim, normalization, inverse=False)
    if not onesided:
        return _complex(x + x.dtype.type(0) * 1j, dim, lax.FftType.FFT) * scale
    *outer, last = dim
    # XLA's real transform takes up to three dimensions at once, the halved one last.
    inner, outer = outer[-2:], outer[:-2]
    return _complex(_transform(x, [*inner, last], lax.FftType.RFFT), outer, lax.FftType.FFT) * scale


@lower(aten._fft_c2r.default)
def fft_c2r(x: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    *outer, last = dim
    inner, outer = outer[-2:], outer[:-2]
    half = lax.slice_in_dim(x, 0, last_dim_size // 2 + 1, axis=last % x.ndim)
    out = _complex(half, outer, lax.FftType.IFFT)
    out = _transform(out, [*inner, last], lax.FftType.IRFFT, last_dim_size)
    return out * _scale(out, dim, normalization, inverse=True)


def _complex(x: Array, dim: Sequence[int], kind: lax.FftType) -> Array:
    for start in range(0, len(dim), 3):
        x = _transform(x, dim[start : start + 3], kind)
    return x


def _transform(
    x: Array, dim: Sequence[int], kind: lax.FftType, last_dim_size: int | None = None
) -> Array:
    innermost = range(-len(dim), 0)
    moved = jnp.moveaxis(x, dim, innermost)
    lengths = [*moved.shape[-len(dim) :]]
    if last_dim_size is not None:
        lengths[-1] = last_dim_size
    return jnp.moveaxis(lax.fft(moved, kind, tuple(lengths)), innermost, dim)


def _scale(x: Array, dim: Sequence[int], normalization: int, inverse: bool) -> float:
    count = math.prod(x.shape[d] for d in dim)
    wanted = {0: 1.0, 1: 1 / math.sqrt(count or 1), 2: 1 / (count or 1)}[normalization]
    return wanted * count if inverse else wanted
