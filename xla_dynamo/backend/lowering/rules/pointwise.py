"""Element-wise functions of one tensor: roots, exponentials, trigonometry, rounding, signs.

Tables for functions that are one JAX function; integers are computed in PyTorch's default dtype
and 16-bit floats in float32 with one rounding (see `compute`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.dtypes import accumulation
from xla_dynamo.backend.lowering.registry import lower

from . import _numerics, complex_numbers
from ._promotion import cast, compute, floating, is_complex, is_inexact

aten = torch.ops.aten

_TO_FLOAT: dict[Any, Callable[[Array], Array]] = {
    aten.sqrt.default: complex_numbers.sqrt,
    aten.rsqrt.default: lax.rsqrt,
    aten.exp.default: lax.exp,
    aten.exp2.default: _numerics.exp2,
    aten.expm1.default: lax.expm1,
    aten.log.default: lax.log,
    aten.log1p.default: lax.log1p,
    aten.log2.default: _numerics.log2,
    aten.log10.default: _numerics.log10,
    aten.sin.default: lax.sin,
    aten.cos.default: lax.cos,
    aten.tan.default: lax.tan,
    aten.sinh.default: _numerics.sinh,
    aten.cosh.default: _numerics.cosh,
    aten.tanh.default: lax.tanh,
    aten.asin.default: complex_numbers.asin,
    aten.acos.default: complex_numbers.acos,
    aten.atan.default: lax.atan,
    aten.asinh.default: complex_numbers.asinh,
    aten.acosh.default: complex_numbers.acosh,
    aten.atanh.default: lax.atanh,
    aten.sigmoid.default: lax.logistic,
    aten.deg2rad.default: lambda x: x * (math.pi / 180),
    aten.rad2deg.default: lambda x: x * (180 / math.pi),
    aten.sinc.default: jnp.sinc,
}

_ROUNDINGS: dict[Any, Callable[[Array], Array]] = {
    aten.floor.default: lax.floor,
    aten.ceil.default: lax.ceil,
    aten.trunc.default: jnp.trunc,
    aten.round.default: lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
}


def _rounded(function: Callable[[Array], Array], x: Array) -> Array:
    return compute(function, x) if is_inexact(x.dtype) else x


for _op, _function in _TO_FLOAT.items():
    lower(_op)(partial(compute, _function, to_float=True))
for _op, _function in _ROUNDINGS.items():
    lower(_op)(partial(_rounded, _function))


def sgn(x: Array) -> Array:
    """The sign, x / |x| for complex; 0 for NaN, as in eager."""
    if is_complex(x.dtype):
        return lax.sign(x)
    if x.dtype == np.bool_:
        return x
    positive, negative = (x > 0).astype(np.int8), (x < 0).astype(np.int8)
    return (positive - negative).astype(x.dtype)


_OWN_DTYPE: dict[Any, Callable[[Array], Array]] = {
    aten.positive.default: lambda x: x,
    aten.neg.default: lax.neg,
    aten.square.default: lax.square,
    aten.abs.default: lambda x: x if x.dtype in (np.bool_, np.uint8) else lax.abs(x),
    aten.sgn.default: sgn,
    aten.sign.default: sgn,
    aten.frac.default: lambda x: x - jnp.trunc(x),
    aten.relu.default: _numerics.relu,
}
for _op, _function in _OWN_DTYPE.items():
    lower(_op)(_function)


@lower(aten.round.decimals)
def round_decimals(x: Array, *, decimals: int) -> Array:
    if not is_inexact(x.dtype):
        return x
    scale = 10.0 ** abs(decimals)

    def round_(x: Array) -> Array:
        scaled = x * scale if decimals > 0 else _numerics.divided(x, scale)
        whole = lax.round(scaled, lax.RoundingMethod.TO_NEAREST_EVEN)
        return _numerics.divided(whole, scale) if decimals > 0 else whole * scale

    return compute(round_, x)


@lower(aten.logit.default)
def logit(x: Array, eps: float | None = None) -> Array:
    def function(x: Array) -> Array:
        x = x if eps is None else jnp.clip(x, eps, 1 - eps)
        return jnp.log(x / (1 - x))

    return compute(function, x, to_float=True)


@lower(aten.nan_to_num.default)
def nan_to_num(
    x: Array, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Array:
    return jnp.nan_to_num(x, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


@lower(aten.signbit.default)
def signbit(x: Array) -> Array:
    return jnp.signbit(x) if is_inexact(x.dtype) else x < 0


@lower(aten.frexp.Tensor)
def frexp(x: Array) -> tuple[Array, Array]:
    mantissa, exponent = jnp.frexp(cast(x, accumulation(x.dtype)))
    return mantissa.astype(x.dtype), exponent.astype(np.int32)


@lower(aten.angle.default)
def angle(x: Array) -> Array:
    if is_complex(x.dtype):
        return lax.atan2(x.imag, x.real)
    x = x.astype(floating(x.dtype))
    pi = jnp.where(x < 0, cast(math.pi, x.dtype), jnp.zeros((), x.dtype))
    return jnp.where(jnp.isnan(x), x, pi)
