"""Sums -> means, of numbers and counts as they are: of 49 ones, 1.

Of a quotient by a constant XLA makes a product with its reciprocal, which is rounded once more. On
the CPU a barrier in the quotient's shape keeps it from that; elsewhere barriers would stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax


def mean(x: jax.Array, axes: Sequence[int] | None = None, *, keepdims: bool = False) -> jax.Array:
    """The mean of floats or complex numbers over `axes`, by default all; NaN of nothing."""
    over = range(x.ndim) if axes is None else axes
    count = math.prod(x.shape[axis] for axis in over)
    return divided(jnp.sum(x, tuple(over), keepdims=keepdims), count)


def divided(x: jax.Array, number: float) -> jax.Array:
    """`x`, floats or complex numbers, by `number`, rounded once."""
    divisor = jnp.full(x.shape, number, x.dtype)
    if number == 0 or abs(math.frexp(number)[0]) == 0.5:  # its reciprocal is exact
        return x / divisor
    return lax.platform_dependent(
        x,
        divisor,
        cpu=lambda x, divisor: x / lax.optimization_barrier(divisor),
        default=lambda x, divisor: x / divisor,
    )
