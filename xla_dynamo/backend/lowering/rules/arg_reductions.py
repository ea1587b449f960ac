"""Reductions that also give positions: argmax, max.dim and the like.

Positions are those of the first extremum, or of the first NaN. Values and positions are separate
reductions: XLA drops the one that is not used and fuses the two where both are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import lower

from ._dims import at_least_1d, axis
from .reductions import amax, amin

aten = torch.ops.aten


def _position(
    arg: Callable[..., Array], x: Array, dim: int | None = None, keepdim: bool = False
) -> Array:
    source = x.reshape(-1) if dim is None else at_least_1d(x)
    over = axis(dim or 0, source.ndim)
    if x.size == 0:
        result = jnp.zeros([size for d, size in enumerate(source.shape) if d != over], np.int32)
    else:
        source = source.astype(np.int8) if source.dtype == np.bool_ else source
        dtype = np.int32 if source.shape[over] < 2**31 else np.int64
        result = arg(source, over, dtype)
    if keepdim and x.ndim:
        shape = [1] * x.ndim if dim is None else list(source.shape)
        shape[over] = 1
        return result.reshape(shape)
    return result.reshape(()) if x.ndim == 0 else result


argmax = lower(aten.argmax.default)(partial(_position, lax.argmax))
argmin = lower(aten.argmin.default)(partial(_position, lax.argmin))


@lower(aten.max.dim)
def max_dim(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    return amax(x, [dim], keepdim), argmax(x, dim, keepdim)


@lower(aten.min.dim)
def min_dim(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    return amin(x, [dim], keepdim), argmin(x, dim, keepdim)
