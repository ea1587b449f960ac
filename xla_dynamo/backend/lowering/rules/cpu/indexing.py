"""Reading and writing by several indices on the CPU: by one index into joined dimensions.

XLA:CPU keeps every coordinate in bounds as it reads or writes: one takes less time than two.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import indexing, scatter


@indexing.take.on("cpu")
def take(x: Array, key: Any, *, wrap: bool = True) -> Array:
    one = joined(x, key)
    plain = indexing.take.plain
    return plain(x, key, wrap=wrap) if one is None else plain(*one, wrap=False)


@scatter.written.on("cpu")
def written(x: Array, key: Any, values: Array, method: str, mode: str) -> Array:
    # An index out of range in one dimension would be in range of the joined one.
    one = joined(x, key) if mode == "promise_in_bounds" else None
    if one is None:
        return scatter.written.plain(x, key, values, method, mode)
    merged, place = one
    write = getattr(merged.at[indexing.narrowed(merged, place)], method)
    return write(values, mode=mode, wrap_negative_indices=False).reshape(x.shape)


def joined(x: Array, key: Any) -> tuple[Array, tuple[Any, ...]] | None:
    """`x` with its indexed dimensions made one, and the key with the one index into that.

    None where less than two dimensions are indexed, or where they are not neighbours.
    """
    key = key if isinstance(key, tuple) else (key,)
    dims = [dim for dim, entry in enumerate(key) if not isinstance(entry, slice)]
    first, last = (dims[0], dims[-1] + 1) if dims else (0, 0)
    sizes = x.shape[first:last]
    if len(dims) < 2 or len(sizes) > len(dims) or not 0 < math.prod(sizes) < 2**31:
        return None
    place = np.int32(0)
    for size, entry in zip(sizes, key[first:last], strict=True):
        coordinate = jnp.asarray(entry).astype(np.int32)
        place = place * np.int32(size) + jnp.where(coordinate < 0, coordinate + size, coordinate)
    merged = x.reshape(*x.shape[:first], math.prod(sizes), *x.shape[last:])
    return merged, (*key[:first], place, *key[last:])
