"""Packed sequences (ops/packed.py): rows are gathered by positions that the lengths give."""

from __future__ import annotations

import torch
from jax import Array, lax
from jax import numpy as jnp

from xla_dynamo.backend.lowering.registry import lower

ops = torch.ops.xla_dynamo


def _counts(steps: int, lengths: Array) -> Array:
    return lax.broadcasted_iota(lengths.dtype, (steps, *lengths.shape), 0) < lengths


@lower(ops.pack_rows.default)
def pack_rows(x: Array, lengths: Array, count: int) -> Array:
    (index,) = jnp.nonzero(_counts(x.shape[0], lengths).reshape(-1), size=count)
    return x.reshape(-1, *x.shape[2:])[index]


@lower(ops.pad_rows.default)
def pad_rows(rows: Array, lengths: Array, steps: int, value: float) -> Array:
    counts = _counts(steps, lengths)
    if rows.shape[0] == 0:
        return jnp.full((*counts.shape, *rows.shape[1:]), value, rows.dtype)
    before = jnp.cumsum(counts.reshape(-1), dtype=jnp.int32) - 1
    padded = rows[jnp.maximum(before, 0)].reshape(*counts.shape, *rows.shape[1:])
    counts = counts.reshape(*counts.shape, *[1] * (rows.ndim - 1))
    return jnp.where(counts, padded, jnp.asarray(value, rows.dtype))
