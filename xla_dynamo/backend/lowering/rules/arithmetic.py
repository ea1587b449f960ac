"""Arithmetic of two or more operands: add, mul, div with its roundings, pow, clamp, lerp, ...

Operands are tensors of mixed dtypes or Python numbers, promoted as PyTorch does and computed by
`compute`: integers exactly, 16-bit floats in float32 with one rounding at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.dtypes import accumulation
from xla_dynamo.backend.lowering.registry import Unsupported, lower

from ._numerics import at_least, at_most, is_dropped, plus_zero
from ._promotion import cast, compute, is_array, is_complex, is_inexact, promote, result_dtype
from .complex_numbers import sqrt

aten = torch.ops.aten

# A tensor of the graph or a Python number.
Operand = Any


@lower(aten.add.Tensor, aten.add.Scalar)
def add(x: Operand, y: Operand, alpha: Operand = 1) -> Array:
    if result_dtype(x, y) == np.bool_:
        return jnp.logical_or(x, jnp.logical_and(y, alpha))
    if is_dropped(y, alpha):
        return compute(lambda x, y: plus_zero(x), x, y)
    alpha = _rounded(alpha, x, y)
    return compute(lambda x, y: x + _scaled(y, alpha), x, y, numbers_rounded=True)


@lower(aten.sub.Tensor, aten.sub.Scalar)
def sub(x: Operand, y: Operand, alpha: Operand = 1) -> Array:
    if not is_array(alpha) and alpha == 1 and not is_dropped(y, -alpha):
        return compute(jnp.subtract, x, y, numbers_rounded=True)
    # Eager adds (-alpha) * y: the integer 0 stays 0, which decides the sign of a zero.
    return add(x, y, -alpha)


@lower(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(x: Operand, y: Operand, alpha: Operand = 1) -> Array:
    return sub(y, x, alpha)


_COMPUTED: dict[tuple[Any, ...], Callable[..., Array]] = {
    (aten.mul.Tensor, aten.mul.Scalar): jnp.multiply,
    (aten.maximum.default, aten.max.other): jnp.maximum,
    (aten.minimum.default, aten.min.other): jnp.minimum,
    (aten.fmax.default,): jnp.fmax,
    (aten.fmin.default,): jnp.fmin,
    (aten.clamp_min.default, aten.clamp_min.Tensor): at_least,
    (aten.clamp_max.default, aten.clamp_max.Tensor): at_most,
    (aten.gcd.default,): jnp.gcd,
    (aten.lcm.default,): jnp.lcm,
}
for _ops, _function in _COMPUTED.items():
    lower(*_ops)(partial(compute, _function))


@lower(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor)
def div(x: Operand, y: Operand) -> Array:
    return compute(jnp.divide, x, y, to_float=True)


@lower(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(x: Operand, y: Operand, *, rounding_mode: str | None) -> Array:
    if rounding_mode is None:
        return div(x, y)
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if is_inexact(result_dtype(x, y)):
        if _is_number(y):
            return compute(lambda x, y: jnp.trunc(x / y), x, y)
        # Eager rounds the quotient to its 16 bits before it truncates.
        return jnp.trunc(div(x, y))
    return lax.div(*jnp.broadcast_arrays(*promote(x, y)))


@lower(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(x: Operand, y: Operand) -> Array:
    return compute(_floored, x, y, numbers_rounded=_is_number(x))


@lower(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(x: Operand, y: Operand) -> Array:
    return compute(lambda x, y: _rest(x, y)[0], x, y, numbers_rounded=True)


@lower(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def remainder(x: Operand, y: Operand) -> Array:
    """The remainder with the sign of the divisor."""
    return compute(_modulo, x, y, numbers_rounded=True)


@lower(aten.reciprocal.default)
def reciprocal(x: Array) -> Array:
    return compute(lambda x: 1 / x, x, to_float=True)


@lower(aten.addcmul.default)
def addcmul(x: Array, first: Array, second: Array, *, value: Operand = 1) -> Array:
    return compute(lambda x, y, z: x + _scaled(y, value) * z, x, first, second)


@lower(aten.addcdiv.default)
def addcdiv(x: Array, first: Array, second: Array, *, value: Operand = 1) -> Array:
    return compute(lambda x, y, z: x + _scaled(y, value) / z, x, first, second)


@lower(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(start: Array, end: Array, weight: Operand) -> Array:
    def interpolate(start: Array, end: Array, weight: Array) -> Array:
        # From the nearer end: exact at both.
        near_start = jnp.abs(weight) < 0.5
        change = end - start
        return jnp.where(near_start, start + weight * change, end - change * (1 - weight))

    return compute(interpolate, start, end, weight)


@lower(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def pow_(base: Operand, exponent: Array) -> Array:
    if not is_inexact(result_dtype(base, exponent)):
        return _integer_power(*promote(base, exponent))
    return compute(lax_power, base, exponent, numbers_rounded=True)


@lower(aten.pow.Tensor_Scalar)
def pow_scalar(base: Array, exponent: Operand) -> Array:
    """Small constant exponents become multiplications and roots, as in eager."""
    if exponent in (0.5, -0.5):
        return compute(sqrt if exponent == 0.5 else lax.rsqrt, base, to_float=True)
    dtype = result_dtype(base, exponent)
    if exponent == 0:
        return jnp.ones_like(base, dtype=dtype)
    if isinstance(exponent, complex) or not float(exponent).is_integer():
        return compute(lax_power, base, exponent, numbers_rounded=True)
    if not is_inexact(dtype) and exponent < 0:
        raise Unsupported(
            "An integer has no negative power that is an integer.",
            "Convert the base to a float first.",
        )
    if is_inexact(dtype) and abs(exponent) > 16:
        return compute(lax_power, base, exponent, numbers_rounded=True)
    return compute(lambda x: lax.integer_pow(x, int(exponent)), base.astype(dtype))


@lower(aten.float_power.Tensor_Tensor, aten.float_power.Tensor_Scalar, aten.float_power.Scalar)
def float_power(base: Operand, exponent: Operand) -> Array:
    complex_ = np.issubdtype(result_dtype(base, exponent), np.complexfloating)
    dtype = np.complex128 if complex_ else np.float64
    return lax_power(jnp.asarray(base).astype(dtype), jnp.asarray(exponent).astype(dtype))


@lower(aten.clamp.default, aten.clamp.Tensor)
def clamp(x: Array, low: Operand = None, high: Operand = None) -> Array:
    """The upper bound wins where the two cross; NaN wins over both."""
    if low is None:
        return compute(at_most, x, high)
    if high is None:
        return compute(at_least, x, low)
    return compute(lambda x, low, high: at_most(at_least(x, low), high), x, low, high)


def lax_power(base: Array, exponent: Array) -> Array:
    base, exponent = jnp.broadcast_arrays(base, exponent)
    power = lax.pow(base, exponent)
    if not is_complex(power.dtype):
        return power
    # Eager computes exp(exponent * log(0)); XLA gives nan for any exponent that is not real.
    real = lax.real(exponent)
    nan = jnp.full_like(real, jnp.nan)
    at_zero = jnp.where(real > 0, 0, lax.complex(jnp.where(real < 0, jnp.inf, nan), nan))
    return jnp.where(base == 0, at_zero, power)


def _is_number(operand: Operand) -> bool:
    return not is_array(operand) or operand.ndim == 0


def _scaled(x: Array, alpha: Operand) -> Array:
    if not is_array(alpha) and alpha == 1:
        return x
    return x * jnp.asarray(alpha).astype(x.dtype)


def _rounded(alpha: Operand, *operands: Operand) -> Operand:
    """`alpha` as eager multiplies a summand by it: rounded to 16 bits beside 16-bit operands."""
    dtype = result_dtype(*operands)
    return alpha if dtype == accumulation(dtype) else cast(alpha, dtype)


def _modulo(x: Array, y: Array) -> Array:
    rest, crossed = _rest(x, y)
    return jnp.where(crossed, rest + y, rest)


def _rest(x: Array, y: Array) -> tuple[Array, Array]:
    """The remainder with the sign of `x`, and whether the sign of `y` is the other one."""
    rest = lax.rem(*jnp.broadcast_arrays(x, y))
    return rest, (rest != 0) & ((rest < 0) != (y < 0))


def _floored(x: Array, y: Array) -> Array:
    x, y = jnp.broadcast_arrays(x, y)
    rest, crossed = _rest(x, y)
    if not is_inexact(x.dtype):
        quotient = lax.div(x, y)
        return jnp.where(crossed, quotient - 1, quotient) if _is_signed(x) else quotient
    # x - rest is a multiple of y, so that this quotient is whole up to rounding; x / y is not.
    quotient = (x - rest) / y
    quotient = jnp.where(crossed, quotient - 1, quotient)
    floor = jnp.floor(quotient)
    floor = jnp.where(quotient - floor > 0.5, floor + 1, floor)
    floor = jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(x), x / y), floor)
    return jnp.where(y == 0, x / y, floor)


def _is_signed(x: Array) -> bool:
    return np.issubdtype(x.dtype, np.signedinteger)


def _integer_power(base: Array, exponent: Array) -> Array:
    """Integer powers by squaring, one step for each bit of the exponent; they wrap around."""
    base, exponent = jnp.broadcast_arrays(base, exponent)

    def step(_: int, state: tuple[Array, ...]) -> tuple[Array, ...]:
        result, square, rest = state
        result = jnp.where(rest & 1 != 0, result * square, result)
        return result, square * square, rest >> 1

    bits = np.iinfo(base.dtype).bits
    result = lax.fori_loop(0, bits, step, (jnp.ones_like(base), base, exponent))[0]
    if not _is_signed(base):
        return result
    odd = jnp.where(exponent & 1 != 0, -1, 1)
    inverse = jnp.where(base == 1, 1, jnp.where(base == -1, odd, 0)).astype(base.dtype)
    return jnp.where(exponent < 0, inverse, result)
