"""Vector norms: one reduction of |x|, in float32 for 16-bit floats."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array

from xla_dynamo.backend.lowering.dtypes import accumulation, to_numpy
from xla_dynamo.backend.lowering.registry import lower

from ._dims import axes
from ._promotion import cast, promote
from .reductions import Dims, amax, amin, square

aten = torch.ops.aten


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
        return jnp.sqrt(jnp.sum(square(x), over, keepdims=keepdim))
    magnitude = jnp.abs(x)
    if ord == 1:
        return jnp.sum(magnitude, over, keepdims=keepdim)
    if math.isinf(ord):
        return (amax if ord > 0 else amin)(magnitude, over, keepdim)
    total = jnp.sum(magnitude**ord, over, keepdims=keepdim)
    return total ** (1.0 / ord)


@lower(aten.norm.Scalar, aten.norm.ScalarOpt_dim)
@lower(aten.norm.ScalarOpt_dtype, aten.norm.ScalarOpt_dim_dtype)
def norm(x: Array, p: float | None = 2, *args: Any, **kwargs: Any) -> Array:
    return linalg_vector_norm(x, 2 if p is None else p, *args, **kwargs)


@lower(aten.dist.default)
def dist(x: Array, other: Array, p: float = 2) -> Array:
    first, second = promote(x, other)
    return linalg_vector_norm(first - second, p)
