"""Floating-point functions of two tensors: atan2, hypot, logaddexp, xlogy, copysign, ..."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import lower

from ._numerics import atan2, divided, exp2
from ._promotion import compute, is_complex, is_inexact

aten = torch.ops.aten


def _times(log: Callable[[Array], Array], x: Array, y: Array) -> Array:
    """x * log(y), which is 0 where x is 0 and NaN where y is, whatever the other one is."""
    product = jnp.where(x == 0, jnp.zeros((), x.dtype), x * log(y))
    return jnp.where(jnp.isnan(y), y, product)


def _logaddexp(x: Array, y: Array) -> Array:
    if not is_complex(x.dtype):
        return jnp.logaddexp(x, y)
    # The imaginary part is not wrapped into (-pi, pi].
    larger = jnp.where(x.real >= y.real, x, y)
    return larger + jnp.log1p(jnp.exp(x + y - 2 * larger))


def _logaddexp2(x: Array, y: Array) -> Array:
    if is_complex(x.dtype):
        return _logaddexp(x * math.log(2), y * math.log(2)) / math.log(2)
    # Divided: a product is not rounded where it is fused with the sum into one instruction.
    difference = x - y
    rest = divided(jnp.log1p(jnp.exp2(-jnp.abs(difference))), math.log(2))
    return jnp.where(jnp.isnan(difference), x + y, jnp.maximum(x, y) + rest)


_PAIRS: dict[tuple[Any, ...], Callable[..., Array]] = {
    (aten.atan2.default,): atan2,
    (aten.hypot.default,): jnp.hypot,
    (aten.copysign.Tensor, aten.copysign.Scalar): jnp.copysign,
    (aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other): partial(_times, jnp.log),
    (
        aten.special_xlog1py.default,
        aten.special_xlog1py.self_scalar,
        aten.special_xlog1py.other_scalar,
    ): partial(_times, jnp.log1p),
    (aten.logaddexp.default,): _logaddexp,
    (aten.logaddexp2.default,): _logaddexp2,
}
for _ops, _function in _PAIRS.items():
    lower(*_ops)(partial(compute, _function, to_float=True, numbers_rounded=True))


@lower(aten.ldexp.Tensor)
def ldexp(x: Array, exponent: Array) -> Array:
    """Right for whole exponents also where 2 ** exponent overflows, but the product does not."""
    if is_inexact(exponent.dtype):
        return compute(lambda x, y: x * exp2(y), x, exponent)
    # No format has exponents that span more than 5000.
    places = jnp.clip(exponent.astype(jnp.int64), -5000, 5000).astype(jnp.int32)
    return compute(lambda x: jnp.ldexp(x, places), x, to_float=True)


@lower(aten.nextafter.default)
def nextafter(x: Array, y: Array) -> Array:
    # In the operands' own dtype: its neighbours are what is asked for.
    return lax.nextafter(*jnp.broadcast_arrays(x, y))


@lower(aten.heaviside.default)
def heaviside(x: Array, values: Array) -> Array:
    return compute(lambda x, v: jnp.where(x == 0, v, (x > 0).astype(x.dtype)), x, values)
