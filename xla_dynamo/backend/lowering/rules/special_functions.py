"""Special functions: gamma, error and Bessel functions and their inverses, mostly from jax.scipy.

Integers are computed in the default float dtype, 16-bit floats in float32.
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
from jax.scipy import special

from xla_dynamo.backend.jax_adapter import erfcx
from xla_dynamo.backend.lowering.registry import lower

from ._numerics import plus_zero
from ._promotion import compute

aten = torch.ops.aten

# Riemann's zeta(k) - 1 for k = 2, 3, ...: https://dlmf.nist.gov/25.2.E1.
_ZETA_LESS_1 = (
    *(0.6449340668482264, 0.2020569031595943, 0.08232323371113819, 0.03692775514336993),
    *(0.01734306198444914, 0.008349277381922827, 0.00407735619794434, 0.0020083928260822143),
    *(0.0009945751278180853, 0.0004941886041194645, 0.0002460865533080483, 0.00012271334757848915),
    *(6.124813505870483e-05, 3.058823630702049e-05, 1.528225940865187e-05, 7.637197637899763e-06),
    *(3.81729326499984e-06, 1.908212716553939e-06, 9.539620338727962e-07, 4.769329867878064e-07),
    *(2.38450502727733e-07, 1.1921992596531106e-07, 5.960818905125948e-08, 2.980350351465228e-08),
    *(1.4901554828365043e-08, 7.45071178983543e-09),
)


def _lgamma(x: Array) -> Array:
    """lax.lgamma, but near its zeros at 1 and 2, where its terms cancel.

    There it is the Taylor series at 2, https://dlmf.nist.gov/5.7.E3, or lgamma(x + 1) - log(x).
    """
    to_one = x < 1.5
    near = (x > 0.5) & (x < 2.5)
    z = jnp.where(near, x - jnp.where(to_one, 1, 2).astype(x.dtype), 0)
    count = len(_ZETA_LESS_1) if x.dtype == np.float64 else 13
    signed = [zeta * (-1) ** k / k for k, zeta in enumerate(_ZETA_LESS_1[:count], 2)]
    series = z * jnp.polyval(jnp.asarray([*signed[::-1], 1 - np.euler_gamma], x.dtype), z)
    at_zero = series - jnp.where(to_one, jnp.log1p(z), 0)
    return jnp.where(near, at_zero, lax.lgamma(x))


def _digamma(x: Array) -> Array:
    return jnp.where(x == 0, jnp.copysign(jnp.full_like(x, jnp.inf), -x), lax.digamma(x))


def _i1(x: Array) -> Array:
    return lax.exp(lax.abs(x)) * _i1e(x)


def _i1e(x: Array) -> Array:
    return plus_zero(lax.bessel_i1e(x))


def _entr(x: Array) -> Array:
    """-x * log(x); jax's is other than eager's at the corners."""
    safe = jnp.where(x > 0, x, jnp.ones((), x.dtype))
    value = jnp.where(x > 0, -x * jnp.log(safe), jnp.where(x == 0, 0.0, -jnp.inf))
    return jnp.where(jnp.isnan(x), x, value)


def _spherical_bessel_j0(x: Array) -> Array:
    return jnp.where(jnp.isinf(x), 0.0, jnp.where(x == 0, 1.0, jnp.sin(x) / x))


def _erfcx(x: Array) -> Array:
    """exp(x ** 2) * erfc(x); jax's is 0 where erfc(x) underflows."""
    large = jnp.abs(x) > (9.0 if x.dtype == np.float32 else 26.0)
    w = 0.5 / jnp.where(large, x, jnp.inf) ** 2
    # The first terms of the asymptotic series, https://dlmf.nist.gov/7.12.E1.
    series = 1.0
    for factor in (11.0, 9.0, 7.0, 5.0, 3.0, 1.0):
        series = 1.0 - factor * w * series
    tail = series / (jnp.where(large, x, 1.0) * math.sqrt(math.pi))
    return jnp.where(large & (x > 0), tail, erfcx(x))


_UNARY: dict[Any, Callable[[Array], Array]] = {
    aten.erf.default: lax.erf,
    aten.erfc.default: lax.erfc,
    aten.erfinv.default: lax.erf_inv,
    aten.special_erfcx.default: _erfcx,
    aten.lgamma.default: _lgamma,
    aten.digamma.default: _digamma,
    aten.i0.default: special.i0,
    aten.special_i0e.default: lax.bessel_i0e,
    aten.special_i1.default: _i1,
    aten.special_i1e.default: _i1e,
    aten.special_modified_bessel_i0.default: special.i0,
    aten.special_modified_bessel_i1.default: _i1,
    aten.special_ndtri.default: special.ndtri,
    aten.special_ndtr.default: special.ndtr,
    aten.special_log_ndtr.default: special.log_ndtr,
    aten.special_entr.default: _entr,
    aten.special_spherical_bessel_j0.default: _spherical_bessel_j0,
}


def _zeta(x: Array, q: Array) -> Array:
    """Hurwitz's zeta: XLA's for positive q, to which the terms at negative ones are added."""
    x, q = jnp.broadcast_arrays(x, q)
    # Terms more than 1000 below zero are a difference of two zetas of positive arguments.
    skipped = jnp.maximum(jnp.floor(-q) - 1000, 0)
    near = q + skipped
    sign = jnp.where(x % 2 == 0, 1, -1).astype(x.dtype)
    far = jnp.where(skipped > 0, sign * (lax.zeta(x, 1 - near) - lax.zeta(x, 1 - q)), 0)

    def add_term(state: tuple[Array, Array]) -> tuple[Array, Array]:
        q, total = state
        return jnp.where(q < 0, q + 1, q), jnp.where(q < 0, total + lax.pow(q, -x), total)

    positive, total = lax.while_loop(lambda state: jnp.any(state[0] < 0), add_term, (near, far))
    # The largest term of the series, which below zero has one of a base below 1; nan for q > 1.
    largest = lax.pow(jnp.maximum(q, 0), -x)
    value = jnp.where((x == jnp.inf) & (q <= 1), largest, total + lax.zeta(x, positive))
    pole = (x == 1) | (~(x < 1) & (q <= 0) & (q == jnp.floor(q)))
    undefined = (x < 1) | ((q <= 0) & (x != jnp.floor(x))) | jnp.isnan(x) | jnp.isnan(q)
    return jnp.where(pole, jnp.inf, jnp.where(undefined, jnp.nan, value))


def _incomplete_gamma(
    function: Callable[..., Array], first: float, last: float
) -> Callable[..., Array]:
    """`function`, which goes from `first` at x = 0 to `last` at infinity, on all of its domain."""
    side = 1.0 if first > last else -1.0

    def share(a: Array, x: Array) -> Array:
        a, x = jnp.broadcast_arrays(a, x)
        # XLA sums a series until its terms vanish, which for a large `a` they never do.
        large = a > 1e4
        one = jnp.ones_like(a)
        result = function(jnp.where(large, one, a), jnp.where(large, one, x))
        result = jnp.where(large, _uniform(a, x, side), result)
        result = jnp.where(jnp.isinf(a), jnp.full_like(x, first), result)
        result = jnp.where((a == 0) | jnp.isinf(x), jnp.full_like(x, last), result)
        both = (jnp.isinf(a) & jnp.isinf(x)) | ((a == 0) & (x == 0))
        return jnp.where(both | ~(a >= 0) | ~(x >= 0), jnp.full_like(x, jnp.nan), result)

    return share


# The series of eta in powers of mu, and of Temme's c_0 and c_1 in powers of eta.
_ETA = (1, -1 / 3, 7 / 36, -73 / 540, 1331 / 12960)
_C0 = (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515, -571 / 261273600)
_C1 = (-1 / 540, -1 / 288, 25 / 12096)


def _uniform(a: Array, x: Array, side: float) -> Array:
    """Q(a, x) (`side` 1) or P(a, x) (`side` -1) for large `a`: two terms of DLMF 8.12."""
    mu = (x - a) / a
    half_square = jnp.where(jnp.abs(mu) < 1e-3, 0, mu - jnp.log1p(mu))
    near = mu * jnp.polyval(jnp.asarray(_ETA[::-1], a.dtype), mu)
    eta = jnp.where(jnp.abs(mu) < 1e-3, near, jnp.sign(mu) * jnp.sqrt(2 * half_square))
    is_near = jnp.abs(eta) < 0.1
    m, e = (jnp.where(is_near, 1, v).astype(a.dtype) for v in (mu, eta))
    c0 = jnp.where(is_near, jnp.polyval(jnp.asarray(_C0[::-1], a.dtype), eta), 1 / m - 1 / e)
    far = 1 / e**3 - 1 / m**3 - 1 / m**2 - 1 / (12 * m)
    c1 = jnp.where(is_near, jnp.polyval(jnp.asarray(_C1[::-1], a.dtype), eta), far)
    rest = jnp.exp(-0.5 * a * eta**2) * (c0 + c1 / a) / jnp.sqrt(2 * math.pi * a)
    return 0.5 * lax.erfc(side * eta * jnp.sqrt(a / 2)) + side * rest


_igamma = _incomplete_gamma(lax.igamma, 0.0, 1.0)
_igammac = _incomplete_gamma(lax.igammac, 1.0, 0.0)


_BINARY: dict[Callable[..., Array], tuple[Any, ...]] = {
    _igamma: (aten.igamma.default,),
    _igammac: (aten.igammac.default,),
    _zeta: (
        aten.special_zeta.default,
        aten.special_zeta.self_scalar,
        aten.special_zeta.other_scalar,
    ),
}


for _op, _function in _UNARY.items():
    lower(_op)(partial(compute, _function, to_float=True))
for _function, _ops in _BINARY.items():
    lower(*_ops)(partial(compute, _function, to_float=True))


@lower(aten.polygamma.default)
def polygamma(n: int, x: Array) -> Array:
    if n == 0:
        return compute(_digamma, x, to_float=True)
    if n == 1:
        return compute(_trigamma, x, to_float=True)
    factor = math.factorial(n) * (1 if n % 2 else -1)
    return compute(lambda x: factor * _zeta(jnp.full_like(x, n + 1), x), x, to_float=True)


def _trigamma(x: Array) -> Array:
    """zeta(2, x), reflected for x < 1/2: the series of zeta does not hold for negative x."""
    reflected = x < 0.5
    value = _zeta(jnp.full_like(x, 2), jnp.where(reflected, 1 - x, x))
    value = jnp.where(x == jnp.inf, 0, value)
    return jnp.where(reflected, (jnp.pi / jnp.sin(jnp.pi * x)) ** 2 - value, value)


@lower(aten.mvlgamma.default)
def mvlgamma(x: Array, p: int) -> Array:
    constant = p * (p - 1) / 4 * math.log(math.pi)
    steps = np.arange(p) / 2

    def function(x: Array) -> Array:
        return jnp.sum(_lgamma(x[..., None] - steps.astype(x.dtype)), -1) + constant

    return compute(function, x, to_float=True)
