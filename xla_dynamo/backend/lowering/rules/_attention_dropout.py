"""Which weights the dropout of attention keeps: 16 random bits for each, by its position.

Nothing else decides them, so kernels can draw them again in backward, block by block, and blocks of
any size and padded lengths give the same. The bits are those of Threefry-2x32 with 13 rounds, the
fewest that pass all tests of TestU01 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011); a counter gives those of four queries, 32 apart, which keeps them in the lanes of a TPU.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from xla_dynamo.backend.ops.dropout_attention import LONGEST

from . import random_bits

ROWS = 128  # of queries: what is asked for is a multiple of it
_BITS = 16
_ROUNDS = 13
_PIECES = 64 // _BITS


def kept(
    seed: tuple[Any, Any], head: Any, first: tuple[Any, Any], shape: tuple[int, int], p: float
) -> Array:
    """Where weights are kept, bool [..., *shape]: each with probability 1 - p, to 16 bits.

    seed: two words, uint32.
    head: its number among all of the batch, uint32, [..., 1, 1] or a scalar.
    first: the first query, a multiple of ROWS, and the first key.
    """
    rows, columns = shape
    quarter = (rows // _PIECES, columns)
    row, column = (lax.broadcasted_iota(jnp.uint32, quarter, axis) for axis in (0, 1))
    # Not `//`, for which Pallas would ask what TPU is here.
    row = row + lax.div(jnp.asarray(first[0], jnp.uint32), np.uint32(_PIECES))
    column = column + jnp.asarray(first[1], jnp.uint32)
    position = row * np.uint32(LONGEST) + column
    head = jnp.asarray(head, jnp.uint32)
    whole = jnp.broadcast_shapes(jnp.shape(head), quarter)
    drawn = random_bits.threefry(
        *seed, jnp.broadcast_to(head, whole), jnp.broadcast_to(position, whole), _ROUNDS
    )
    grouped = (*whole[:-2], rows // ROWS, 1, ROWS // _PIECES, columns)
    pieces = [
        ((word >> np.uint32(shift)) & np.uint32(2**_BITS - 1)).reshape(grouped)
        for word in drawn
        for shift in range(0, 32, _BITS)
    ]
    bits = jnp.concatenate(pieces, -3).reshape(*whole[:-2], *shape)
    return bits.astype(jnp.int32) < np.int32(round((1 - p) * 2**_BITS))
