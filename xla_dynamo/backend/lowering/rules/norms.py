"""Vector norms: one reduction of |x|, in float32 for 16-bit floats."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
import torch
from jax import Array

from xla_dynamo.backend.lowering.dtypes import accumulation, to_numpy
from xla_dynamo.backend.lowering.registry import lower

from ._dims import axes
from ._promotion import cast, is_complex, promote
from .reductions import amax, amin

aten = torch.ops.aten

Dims = Sequence[int] | int | None


@lower(aten.linalg_vector_norm.default)
def linalg_vector_norm(
    x: Array,
    ord: float = 2,
    dims: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Array:
    result = to_numpy(dtype) if dtype else x.dtype
    x = cast(cast(x, result), accumulation(result))
    over = axes(dims, x.ndim)
    if ord == 0:
        return jnp.sum(x != 0, over, keepdims=keepdim, dtype=jnp.abs(x).dtype)
    if ord == 2:
        square = jnp.square(x)
        if is_complex(x.dtype):
            square = jnp.square(x.real) + jnp.square(x.imag)
        return jnp.sqrt(jnp.sum(square, over, keepdims=keepdim))
    magnitude = jnp.abs(x)
    if ord == 1:
        return jnp.sum(magnitude, over, keepdims=keepdim)
    if math.isinf(ord):
        return (amax if ord > 0 else amin)(magnitude, over, keepdim)
    total = jnp.sum(magnitude**ord, over, keepdims=keepdim)
    return total ** (1.0 / ord)


@lower(aten.norm.Scalar, aten.norm.ScalarOpt_dim)
def norm(x: Array, p: float | None = 2, dims: Dims = None, keepdim: bool = False) -> Array:
    return linalg_vector_norm(x, 2 if p is None else p, dims, keepdim)


@lower(aten.norm.ScalarOpt_dtype)
def norm_dtype(x: Array, p: float | None, *, dtype: torch.dtype) -> Array:
    return linalg_vector_norm(x, 2 if p is None else p, dtype=dtype)


@lower(aten.norm.ScalarOpt_dim_dtype)
def norm_dim_dtype(
    x: Array, p: float | None, dims: Dims, keepdim: bool = False, *, dtype: torch.dtype
) -> Array:
    return linalg_vector_norm(x, 2 if p is None else p, dims, keepdim, dtype=dtype)


@lower(aten.dist.default)
def dist(x: Array, other: Array, p: float = 2) -> Array:
    first, second = promote(x, other)
    return linalg_vector_norm(first - second, p)
