"""exp2, log2, log10, sinh and cosh by way of exp and log, without losing digits around those.

A product in front of an exponential is rounded, and so are sums with a logarithm: near 80, the
rounding of a float32 argument shows in the sixth digit of its exponential. Whole powers of two are
taken out of arguments and put into results by their bits instead, so that exp2(3) is exactly 8.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

# log10(2) in two parts, by size in bits: the first has few digits, and its product with an exponent
# is exact.
_LOG10_2 = {
    32: (float.fromhex("0x1.344p-2"), 4.605038981195214e-06),
    64: (float.fromhex("0x1.34413509f78p-2"), 2.8363394551044964e-14),
}


def exp2(x: Array) -> Array:
    """2 ** x: a power of a fraction, times a whole power in two factors, made of its bits."""
    if jnp.iscomplexobj(x):
        return jnp.exp2(x)
    most = 2 * (int(jnp.finfo(x.dtype).maxexp) - 2)
    whole = jnp.round(jnp.clip(x, -most, most))
    half = jnp.floor(whole / 2)
    fraction = lax.exp((x - whole) * math.log(2))
    return fraction * _whole_power(half) * _whole_power(whole - half)


def log2(x: Array) -> Array:
    """The logarithm to base 2, whole for whole powers."""
    if jnp.iscomplexobj(x):
        return jnp.log2(x)
    exponent, significand = _parts(x)
    return exponent + lax.log(significand) * (1 / math.log(2))


def log10(x: Array) -> Array:
    """The logarithm to base 10: of the exponent's and of the significand's, small one first."""
    if jnp.iscomplexobj(x):
        return jnp.log10(x)
    exponent, significand = _parts(x)
    first, rest = _LOG10_2[jnp.finfo(x.dtype).bits]
    return exponent * first + (exponent * rest + lax.log(significand) * (1 / math.log(10)))


def cosh(x: Array) -> Array:
    """The mean of exp(x) and exp(-x), neither of which overflows before it does."""
    if x.dtype != np.float32:
        return lax.cosh(x)
    growing, falling = _halves(x)
    return growing + falling


def sinh(x: Array) -> Array:
    """As `cosh`, but near 0, where the exponentials cancel."""
    if x.dtype != np.float32:
        return lax.sinh(x)
    growing, falling = _halves(x)
    return jnp.where(jnp.abs(x) < 1, lax.sinh(x), jnp.copysign(growing - falling, x))


def _halves(x: Array) -> tuple[Array, Array]:
    """exp(|x|) / 2 and exp(-|x|) / 2, of the root of exp(|x|)."""
    root = lax.exp(jnp.abs(x) / 2)
    # The barrier keeps the halves apart: the square of the root would be made exp(|x|) again.
    root, half = lax.optimization_barrier((root, 0.5 * root))
    return half * root, 0.25 / half / root


def _whole_power(exponent: Array) -> Array:
    """2 ** exponent, within the range of normal numbers."""
    integer, places, bias = _format(exponent.dtype)
    bits = (exponent + bias).astype(np.int32).astype(integer) << places
    return lax.bitcast_convert_type(bits, exponent.dtype)


def _parts(x: Array) -> tuple[Array, Array]:
    """(e, m) with x = m * 2 ** e and m from the root of 1/2 to that of 2.

    (0, x) where x is no positive normal number.
    """
    integer, places, bias = _format(x.dtype)
    least = int(np.asarray(math.sqrt(0.5), x.dtype).view(integer))
    bits = lax.bitcast_convert_type(x, integer) + ((bias << places) - least)
    significand = lax.bitcast_convert_type((bits & ((1 << places) - 1)) + least, x.dtype)
    is_normal = (x >= jnp.finfo(x.dtype).tiny) & (x < jnp.inf)
    exponent = ((bits >> places).astype(np.int32) - bias).astype(x.dtype)
    return jnp.where(is_normal, exponent, 0), jnp.where(is_normal, significand, x)


def _format(dtype: np.dtype) -> tuple[type[np.unsignedinteger], int, int]:
    """Of float32 or float64: the integers of its size, the places of its fraction, its bias.

    Unsigned ones: a TPU's compiler mistakes the bits of float64 for such.
    """
    limits = jnp.finfo(dtype)
    integer = np.uint32 if limits.bits == 32 else np.uint64
    return integer, int(limits.nmant), int(limits.maxexp) - 1
