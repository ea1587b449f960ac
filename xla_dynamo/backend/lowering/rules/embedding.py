"""Embedding look-up, its gradient and its renormalization: a gather and scatters.

Indices are assumed to be in range, which eager checks and XLA cannot; they are narrowed to int32
where the table allows it. Gradients are summed in float32 for the 16-bit floats: a frequent word
has thousands of summands.
"""

from __future__ import annotations

import jax.numpy as jnp
import torch
from jax import Array

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import PerPlatform, lower

aten = torch.ops.aten


@lower(aten.embedding.default)
def embedding(
    weight: Array,
    indices: Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    return rows_of(weight, indices)


@lower(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    grad: Array, indices: Array, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Array:
    rows = grad.reshape(-1, grad.shape[-1])
    return add_rows(rows, indices.reshape(-1), num_weights, padding_idx, scale_grad_by_freq)


@lower(aten.embedding_renorm.default)
def embedding_renorm(weight: Array, indices: Array, max_norm: float, norm_type: float) -> Array:
    """The table, whose rows at `indices` are scaled down to `max_norm` if their norm exceeds it."""
    indices = _narrow(indices.reshape(-1), weight.shape[0])
    rows = rows_of(weight, indices).astype(dtypes.accumulation(weight.dtype))
    norms = jnp.linalg.norm(rows, norm_type, axis=1, keepdims=True).astype(weight.dtype)
    scale = jnp.where(norms > max_norm, max_norm / (norms.astype(rows.dtype) + 1e-7), 1)
    # A repeated index writes the same row twice.
    return weight.at[indices].set(
        (rows * scale).astype(weight.dtype), mode="drop", wrap_negative_indices=False
    )


def rows_of(weight: Array, indices: Array) -> Array:
    """The rows of `weight` at `indices`."""
    return weight.at[_narrow(indices, weight.shape[0])].get(
        mode="promise_in_bounds", wrap_negative_indices=False
    )


def add_rows(
    rows: Array, indices: Array, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Array:
    """A table of `num_weights` rows, each the sum of the `rows` that have its index.

    `scale_grad_by_freq` makes it their mean; rows of `padding_idx` do not count.
    """
    indices = _narrow(indices, num_weights)
    if scale_grad_by_freq:
        rows = rows.astype(dtypes.accumulation(rows.dtype))
        counts = jnp.zeros(num_weights, rows.dtype).at[indices].add(1, mode="drop")
        rows = rows / rows_of(counts, indices)[:, None]
    if padding_idx >= 0:
        indices = jnp.where(indices == padding_idx, num_weights, indices)
    return sum_rows(rows, indices, num_weights)


@PerPlatform
def sum_rows(rows: Array, indices: Array, size: int) -> Array:
    """`size` rows, each the sum of the `rows` that have its index; other indices are dropped."""
    rows = rows.astype(dtypes.accumulation(rows.dtype))
    table = jnp.zeros((size, *rows.shape[1:]), rows.dtype)
    return table.at[indices].add(rows, mode="drop", wrap_negative_indices=False)


def _narrow(indices: Array, size: int) -> Array:
    return indices.astype(jnp.int32) if size < 2**31 else indices
