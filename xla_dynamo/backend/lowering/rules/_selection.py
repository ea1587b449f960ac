"""The k largest or smallest elements of the last axis, and where they are; NaN is the largest."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import PerPlatform

from ._promotion import is_inexact
from .arg_reductions import argmax


def top(x: Array, k: int, largest: bool) -> tuple[Array, Array]:
    if k == 1 and largest:
        order = argmax(x, -1, keepdim=True)
        return taken(x, order), order
    if x.dtype.itemsize < 4:  # exact in float32
        values, order = top_wide(x.astype(np.float32), k, largest)
        return values.astype(x.dtype), order
    return top_wide(x, k, largest)


@PerPlatform
def top_wide(x: Array, k: int, largest: bool) -> tuple[Array, Array]:
    """`top` of elements of at least 32 bits."""
    values, order = lax.top_k(ordered(x, largest), k)
    return ordered(values, largest), order


def taken(x: Array, order: Array) -> Array:
    return jnp.take_along_axis(x, order, axis=-1, mode="promise_in_bounds")


def ordered(x: Array, largest: bool) -> Array:
    """Keys whose largest are wanted; the keys of keys are the elements again.

    lax.top_k takes a NaN for largest if its sign bit is clear, and for smallest if it is set.
    """
    if not is_inexact(x.dtype):
        return x if largest else ~x
    x = jnp.where(jnp.isnan(x), jnp.full_like(x, jnp.nan), x)
    return x if largest else -x
