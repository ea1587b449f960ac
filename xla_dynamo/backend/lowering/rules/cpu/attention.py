"""Attention's products over queries on the CPU, with the smaller operand on the left."""

from __future__ import annotations

from jax import Array, lax

from .. import attention


@attention.keys_by_features.on("cpu")
def keys_by_features(weights: Array, rows: Array, keys: Array) -> Array:
    """XLA:CPU transposes the left operand of a product over its rows."""
    weights, rows = attention.by_key_head(weights, keys), attention.by_key_head(rows, keys)
    if rows.shape[-1] >= weights.shape[-1]:
        return attention.product("bhts,bhtd->bhsd", weights, rows)
    product = attention.product("bhtd,bhts->bhds", rows, weights)
    # The barrier keeps XLA from turning the product back.
    return lax.optimization_barrier(product).swapaxes(-1, -2)
