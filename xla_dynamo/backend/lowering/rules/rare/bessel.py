"""Bessel functions of orders 0 and 1 and Airy's Ai: power series and one quadrature.

Small arguments take the power series. For others, all functions are values of K, at a real or an
imaginary argument, and K is an integral with a Gaussian weight:

    exp(z) K_v(z) = integral over s > 0 of 2 exp(-s^2) cosh(v t) / sqrt(2z + s^2),
                    where s = sqrt(2z) sinh(t/2)

The trapezoidal rule gives it to full precision with few nodes, as the integrand is analytic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from xla_dynamo.backend.lowering.registry import lower
from xla_dynamo.backend.lowering.rules._promotion import compute

aten = torch.ops.aten

_STEP = 0.25
_NODES = _STEP * np.arange(26)
_WEIGHTS = _STEP * np.exp(-(_NODES**2)) * np.where(_NODES == 0, 1, 2)

# Where the quadrature begins: its singularities are then at least 2 from the real axis.
_OSCILLATING, _DECAYING = 4.0, 2.0
_TERMS = 20
_AIRY_BELOW, _AIRY_ABOVE = -3.5, 1.0
_AIRY_TERMS = 16


def _scaled_k(order: float, z: Array) -> Array:
    """exp(z) K of `order` at z, real or imaginary."""
    z = z[..., None]
    nodes = _NODES.astype(z.real.dtype)
    root = jnp.sqrt(2 * z)
    slope = nodes / root
    cosine = jnp.sqrt(1 + slope * slope)
    if order == 0:
        factor = jnp.ones_like(z)
    elif order == 1:
        factor = 1 + 2 * slope * slope
    else:
        power = (slope + cosine) ** (2 * order)
        factor = (power + 1 / power) / 2
    return jnp.sum(_WEIGHTS.astype(nodes.dtype) * factor / (root * cosine), -1)


def _hankel(order: int, x: Array) -> Array:
    """J + iY of `order` at large x."""
    rotated = _imaginary(-x)
    return (2 / math.pi) * (-1j) ** (order + 1) * jnp.exp(-rotated) * _scaled_k(order, rotated)


def _imaginary(x: Array) -> Array:
    return jax.lax.complex(jnp.zeros_like(x), x)


def _series(order: int, x: Array, sign: int) -> tuple[Array, Array]:
    """J (sign -1) or I (sign 1) of `order` at small x, and its companion in Y or K."""
    k = np.arange(_TERMS)
    terms = np.array([1 / (math.factorial(i) * math.factorial(i + order)) for i in k])
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, _TERMS + order))])
    means = (harmonic[k] + harmonic[k + order]) / 2
    square = sign * x * x / 4
    regular, companion = (_polynomial(c, square) for c in (terms, terms * means))
    front = (x / 2) ** order
    return front * regular, front * companion


def _polynomial(coefficients: np.ndarray, x: Array) -> Array:
    """The polynomial of these coefficients, the constant first."""
    return jnp.polyval(jnp.asarray(coefficients[::-1].copy(), x.dtype), x)


def bessel_j(order: int, x: Array) -> Array:
    size = jnp.abs(x)
    near, far = jnp.minimum(size, _OSCILLATING), jnp.maximum(size, _OSCILLATING)
    small, _ = _series(order, near, -1)
    value = jnp.where(size < _OSCILLATING, small, _hankel(order, far).real)
    return jnp.where(jnp.signbit(x), -value, value) if order else value


def bessel_y(order: int, x: Array) -> Array:
    near, far = jnp.minimum(x, _OSCILLATING), jnp.maximum(x, _OSCILLATING)
    regular, companion = _series(order, near, -1)
    small = (2 / math.pi) * (_logarithm(near) * regular - companion - _pole(order, near))
    value = jnp.where(x < _OSCILLATING, small, _hankel(order, far).imag)
    return jnp.where(x == 0, -jnp.inf, jnp.where(x < 0, jnp.nan, value))


def bessel_k(order: int, scaled: bool, x: Array) -> Array:
    near, far = jnp.minimum(x, _DECAYING), jnp.maximum(x, _DECAYING)
    regular, companion = _series(order, near, 1)
    sign = 1 if order else -1
    small = sign * (_logarithm(near) * regular - companion) + _pole(order, near)
    large = _scaled_k(order, far)
    small, large = (small * jnp.exp(near), large) if scaled else (small, large * jnp.exp(-far))
    value = jnp.where(x < _DECAYING, small, large)
    return jnp.where(x == 0, jnp.inf, jnp.where(x < 0, jnp.nan, value))


def _logarithm(x: Array) -> Array:
    return jnp.log(x / 2) + np.euler_gamma


def _pole(order: int, x: Array) -> Array:
    return 1 / x if order else jnp.zeros_like(x)


def airy_ai(x: Array) -> Array:
    size = jnp.abs(x)
    above, below = jnp.maximum(x, _AIRY_ABOVE), jnp.maximum(size, -_AIRY_BELOW)
    decaying = _airy_k(above, _airy_argument(above)).real
    oscillating = 2 * _airy_k(below, _imaginary(-_airy_argument(below))).imag
    series = _airy_series(jnp.clip(x, _AIRY_BELOW, _AIRY_ABOVE))
    far = jnp.where(x < 0, oscillating, decaying)
    return jnp.where((x > _AIRY_BELOW) & (x < _AIRY_ABOVE), series, far)


def _airy_argument(x: Array) -> Array:
    return (2 / 3) * x * jnp.sqrt(x)


def _airy_k(x: Array, z: Array) -> Array:
    return jnp.sqrt(x / 3) / math.pi * jnp.exp(-z) * _scaled_k(1 / 3, z)


def _airy_series(x: Array) -> Array:
    """Maclaurin's series: two solutions of y'' = xy, whose terms go up by x^3."""
    value, slope = [1.0], [1.0]
    for k in range(1, _AIRY_TERMS):
        value.append(value[-1] / ((3 * k) * (3 * k - 1)))
        slope.append(slope[-1] / ((3 * k) * (3 * k + 1)))
    cube = x * x * x
    at_zero = 1 / (3 ** (2 / 3) * math.gamma(2 / 3))
    slope_at_zero = 1 / (3 ** (1 / 3) * math.gamma(1 / 3))
    even, odd = (_polynomial(np.array(c), cube) for c in (value, slope))
    return at_zero * even - slope_at_zero * x * odd


# Eager's own float64 is off by up to 4e-7 in J and Y (above 5) and by 3e-6 in Ai (below -2).
FUNCTIONS: dict[Any, Callable[[Array], Array]] = {
    aten.special_bessel_j0.default: partial(bessel_j, 0),
    aten.special_bessel_j1.default: partial(bessel_j, 1),
    aten.special_bessel_y0.default: partial(bessel_y, 0),
    aten.special_bessel_y1.default: partial(bessel_y, 1),
    aten.special_airy_ai.default: airy_ai,
    aten.special_modified_bessel_k0.default: partial(bessel_k, 0, False),
    aten.special_modified_bessel_k1.default: partial(bessel_k, 1, False),
    aten.special_scaled_modified_bessel_k0.default: partial(bessel_k, 0, True),
    aten.special_scaled_modified_bessel_k1.default: partial(bessel_k, 1, True),
}


for _op, _function in FUNCTIONS.items():
    lower(_op)(partial(compute, _function, to_float=True))
