"""Complex numbers: construction, real and imaginary parts, conjugation, roots and inverses.

Conjugation and negation are computed at once, so that `resolve_conj` and `resolve_neg`, which
resolve PyTorch's lazy bits, have nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import lower

from ._promotion import is_complex, promote

aten = torch.ops.aten


@lower(aten.complex.default)
def complex_(real: Array, imag: Array) -> Array:
    return lax.complex(*jnp.broadcast_arrays(*promote(real, imag)))


@lower(aten.polar.default)
def polar(magnitude: Array, angle: Array) -> Array:
    magnitude, angle = jnp.broadcast_arrays(*promote(magnitude, angle))
    return lax.complex(magnitude * jnp.cos(angle), magnitude * jnp.sin(angle))


@lower(aten.real.default)
def real(x: Array) -> Array:
    return lax.real(x) if is_complex(x.dtype) else x


@lower(aten.conj.default, aten._conj.default, aten._conj_copy.default)
@lower(aten.conj_physical.default, aten._conj_physical.default)
def conj(x: Array) -> Array:
    return lax.conj(x) if is_complex(x.dtype) else x


lower(aten.imag.default)(lax.imag)
lower(aten.resolve_conj.default, aten.resolve_neg.default)(lambda x: x)
lower(aten._neg_view.default, aten._neg_view_copy.default)(lax.neg)


@lower(aten.view_as_real.default, aten.view_as_real_copy.default)
def view_as_real(x: Array) -> Array:
    return jnp.stack([lax.real(x), lax.imag(x)], axis=-1)


@lower(aten.view_as_complex.default, aten.view_as_complex_copy.default)
def view_as_complex(x: Array) -> Array:
    return lax.complex(x[..., 0], x[..., 1])


def _with_signs(
    function: Callable[[Array], Array], part: int, sign: int = 1
) -> Callable[[Array], Array]:
    """`function`, with one part of complex results (0: real, 1: imaginary) signed as the operand's.

    On a branch cut the sign of a zero tells the side. XLA always takes the same one.
    """

    def signed(x: Array) -> Array:
        y = function(x)
        if not is_complex(x.dtype):
            return y
        parts, given = [lax.real(y), lax.imag(y)], (lax.real(x), lax.imag(x))
        parts[part] = jnp.copysign(parts[part], sign * given[part])
        return lax.complex(*parts)

    return signed


sqrt = _with_signs(lax.sqrt, 1)
asin = _with_signs(lax.asin, 1)
acos = _with_signs(lax.acos, 1, -1)
asinh = _with_signs(lax.asinh, 0)
acosh = _with_signs(lax.acosh, 1)
