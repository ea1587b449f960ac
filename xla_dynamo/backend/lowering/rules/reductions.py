"""Reductions over dims: sum, mean, prod, amax, any, var, logsumexp and their relatives.

Each is one or two lax reductions in eager's accumulation dtype (float32 for 16-bit floats, int64
for integers). Maxima and minima propagate NaN. No dims, and an empty list of dims, mean all dims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from xla_dynamo.backend.lowering.dtypes import accumulation, to_numpy
from xla_dynamo.backend.lowering.registry import lower

from . import _numerics
from ._dims import axes
from ._promotion import cast, floating, is_complex, is_inexact

aten = torch.ops.aten

Dims = Sequence[int] | int | None


def _summands(x: Array, dtype: torch.dtype | None) -> tuple[Array, np.dtype]:
    """`x` in its accumulation dtype, and the dtype of its sum."""
    result = to_numpy(dtype) if dtype else x.dtype
    if dtype is None and not is_inexact(x.dtype):
        result = np.dtype(np.int64)
    return cast(cast(x, result), accumulation(result)), result


@lower(aten.sum.default, aten.sum.dim_IntList)
def sum_(
    x: Array, dims: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Array:
    summands, result = _summands(x, dtype)
    total = jnp.sum(summands, axes(dims, x.ndim), keepdims=keepdim)
    total = _numerics.begun_with_zero(total, of_one=total.size == summands.size)
    return total.astype(result)


@lower(aten.nansum.default)
def nansum(
    x: Array, dims: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Array:
    if is_inexact(x.dtype):
        x = jnp.where(jnp.isnan(x), jnp.zeros((), x.dtype), x)
    return sum_(x, dims, keepdim, dtype=dtype)


@lower(aten.prod.default, aten.prod.dim_int)
def prod(
    x: Array, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Array:
    factors, result = _summands(x, dtype)
    return jnp.prod(factors, axes(dim, x.ndim), keepdims=keepdim).astype(result)


@lower(aten.mean.default, aten.mean.dim)
def mean(
    x: Array, dims: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Array:
    summands, result = _summands(x, dtype)
    mean = _numerics.mean(summands, axes(dims, x.ndim), keepdims=keepdim)
    mean = _numerics.begun_with_zero(mean, of_one=mean.size == summands.size)
    return mean.astype(result)


@lower(aten.nanmean.default)
def nanmean(
    x: Array, dims: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Array:
    summands, result = _summands(x, dtype)
    return jnp.nanmean(summands, axes(dims, x.ndim), keepdims=keepdim).astype(result)


def _extremum(
    function: Callable[..., Array], x: Array, dims: Dims = None, keepdim: bool = False
) -> Array:
    over = axes(dims, x.ndim)
    if x.size == 0 and all(x.shape[axis] for axis in over):
        shape = [1 if d in over else n for d, n in enumerate(x.shape) if keepdim or d not in over]
        return jnp.zeros(shape, x.dtype)
    return function(x, over, keepdims=keepdim)


amax = lower(aten.amax.default, aten.max.default)(partial(_extremum, jnp.max))
amin = lower(aten.amin.default, aten.min.default)(partial(_extremum, jnp.min))


@lower(aten.aminmax.default)
def aminmax(x: Array, *, dim: int | None = None, keepdim: bool = False) -> tuple[Array, Array]:
    # Without a dim, keepdim keeps all of them.
    return amin(x, dim, keepdim), amax(x, dim, keepdim)


def _quantified(
    function: Callable[..., Array], x: Array, dims: Dims = None, keepdim: bool = False
) -> Array:
    """For any and all, an empty list of dims means no reduction."""
    over = () if isinstance(dims, Sequence) and not dims else axes(dims, x.ndim)
    return function(x != 0, over, keepdims=keepdim)


lower(aten.any.default, aten.any.dim, aten.any.dims)(partial(_quantified, jnp.any))
lower(aten.all.default, aten.all.dim, aten.all.dims)(partial(_quantified, jnp.all))
lower(aten._is_any_true.default)(partial(_quantified, jnp.any))
lower(aten._is_all_true.default)(partial(_quantified, jnp.all))


@lower(aten.count_nonzero.default, aten.count_nonzero.dim_IntList)
def count_nonzero(x: Array, dims: Dims = None) -> Array:
    return jnp.sum(x != 0, axes(dims, x.ndim), dtype=np.int64)


@lower(aten.var_mean.correction)
def var_mean(
    x: Array, dims: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Array, Array]:
    """Variance and mean, by the deviations from the mean: one pass for each."""
    over = axes(dims, x.ndim)
    x = cast(x, accumulation(x.dtype))
    mean = _numerics.mean(x, over, keepdims=True)
    count = int(np.prod([x.shape[axis] for axis in over]))
    divisor = max(0, count - (1 if correction is None else correction))
    total = jnp.sum(square(x - mean), over, keepdims=keepdim)
    variance = _numerics.divided(total, divisor)  # by 0 inf or nan, as in eager
    return variance, mean if keepdim else mean.reshape(variance.shape)


def square(x: Array) -> Array:
    """x * x, for complex numbers of their magnitude."""
    return jnp.square(x.real) + jnp.square(x.imag) if is_complex(x.dtype) else jnp.square(x)


@lower(aten.var.correction)
def var(*args: Any, **kwargs: Any) -> Array:
    return var_mean(*args, **kwargs)[0]


@lower(aten.std_mean.correction)
def std_mean(*args: Any, **kwargs: Any) -> tuple[Array, Array]:
    variance, mean = var_mean(*args, **kwargs)
    return jnp.sqrt(variance), mean


@lower(aten.std.correction)
def std(*args: Any, **kwargs: Any) -> Array:
    return std_mean(*args, **kwargs)[0]


@lower(aten.logsumexp.default)
def logsumexp(x: Array, dims: Dims, keepdim: bool = False) -> Array:
    over = axes(dims, x.ndim)
    x = cast(x, accumulation(floating(x.dtype)))
    if x.size == 0:
        return jnp.log(jnp.sum(jnp.exp(x), over, keepdims=keepdim))
    return jax.scipy.special.logsumexp(x, over, keepdims=keepdim)
