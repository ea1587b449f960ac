"""Attention that drops weights -> products, with the weights that its seed keeps."""

from __future__ import annotations

import jax.numpy as jnp
import torch
from jax import Array

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import PerPlatform, Unsupported, lower, lower_random
from xla_dynamo.backend.ops.dropout_attention import LONGEST

from . import _attention_dropout, attention

ops = torch.ops.xla_dynamo


@lower_random(ops.dropout_attention.default)
@PerPlatform
def dropout_attention(
    seed: Array,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Array, Array, Array]:
    factor = _factor(seed, query, key, dropout_p)
    return *attention.forward(query, key, value, mask, is_causal, scale, factor), seed


@lower(ops.dropout_attention_backward.default)
@PerPlatform
def dropout_attention_backward(
    grad: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    logsumexp: Array,
    seed: Array,
    mask: Array | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Array, Array, Array]:
    factor = _factor(seed, query, key, dropout_p)
    operands = grad, query, key, value, out, logsumexp
    return attention.backward(*operands, mask, is_causal, scale, factor)


def _factor(seed: Array, query: Array, key: Array, dropout_p: float) -> Array:
    """What weights are multiplied by, [batch, heads, queries, keys]: 0 or 1 / (1 - dropout_p)."""
    batch, heads, queries, keys = *query.shape[:3], key.shape[2]
    if max(queries, keys) > LONGEST:
        raise Unsupported(
            f"Its {queries} queries or {keys} keys are more than dropout has positions for.",
            "Pass dropout_p=0, or attend within shorter sequences.",
        )
    head = jnp.arange(batch * heads, dtype=jnp.uint32)[:, None, None]
    rows = -(-queries // _attention_dropout.ROWS) * _attention_dropout.ROWS
    kept = _attention_dropout.kept((seed[0], seed[1]), head, (0, 0), (rows, keys), dropout_p)
    kept = kept[:, :queries].reshape(batch, heads, queries, keys)
    wide = dtypes.accumulation(query.dtype)
    return jnp.where(kept, wide.type(1 / (1 - dropout_p)), wide.type(0))
