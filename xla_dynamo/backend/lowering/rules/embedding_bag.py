"""Embedding bags and their gradients: a gather of rows, and sums or maxima over sorted segments.

The bag of each index is a running count of offsets, so no shape depends on the length of a bag.
Eager's CPU kernel omits outputs that a sum of rows does not need (the bag of each index, the sizes
of bags); the outputs here have its shapes, and the gradients recompute the bags. Scaling by
frequency is as documented; eager's CPU kernel divides by the frequency of another index (seen on
torch 2.13).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import Array

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import Unsupported, lower

from .embedding import add_rows, rows_of

aten = torch.ops.aten

SUM, MEAN, MAX = range(3)


@lower(aten._embedding_bag.default)
def _embedding_bag(
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Array, Array, Array, Array]:
    bags = offsets.shape[0] - include_last_offset
    bag_of = _bag_of_each(indices, offsets)
    bag_of_summed = bag_of if padding_idx < 0 else jnp.where(indices == padding_idx, bags, bag_of)
    sizes = jax.ops.segment_sum(jnp.ones_like(indices), bag_of_summed, bags)
    rows = rows_of(weight, indices).astype(dtypes.accumulation(weight.dtype))
    if mode == MAX:
        out, chosen = _maxima(rows, indices, bag_of_summed, sizes)
        return out.astype(weight.dtype), bag_of, sizes, chosen
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    out = jax.ops.segment_sum(rows, bag_of_summed, bags, indices_are_sorted=padding_idx < 0)
    if mode == MEAN:
        out = out / jnp.maximum(sizes, 1)[:, None]
        return out.astype(weight.dtype), bag_of, sizes, sizes
    unset = jnp.zeros_like(sizes)
    if padding_idx < 0 and weight.dtype in (jnp.float32, jnp.float16):
        bag_of = bag_of[:0]
    return out.astype(weight.dtype), bag_of, unset, unset


@lower(aten._embedding_bag_forward_only.default)
def _embedding_bag_forward_only(
    weight: Array, indices: Array, offsets: Array, *options: Any
) -> tuple[Array, Array, Array, Array]:
    """PyTorch declares one bag size for each offset here, the last one included."""
    out, bag_of, sizes, chosen = _embedding_bag(weight, indices, offsets, *options)
    return out, bag_of, jnp.pad(sizes, (0, offsets.shape[0] - sizes.shape[0])), chosen


@lower(aten._embedding_bag_backward.default)
def _embedding_bag_backward(
    grad: Array,
    indices: Array,
    offsets: Array,
    offset2bag: Array,
    bag_size: Array,
    maximum_indices: Array,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Array | None,
    padding_idx: int = -1,
) -> Array:
    if sparse:
        raise Unsupported(
            "It asks for a sparse gradient, and XLA's arrays are dense.", "Pass sparse=False."
        )
    return _embedding_bag_dense_backward(
        *(grad, indices, _bag_of_each(indices, offsets), bag_size, maximum_indices),
        *(num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx),
    )


@lower(aten._embedding_bag_dense_backward.default)
def _embedding_bag_dense_backward(
    grad: Array,
    indices: Array,
    offset2bag: Array,
    bag_size: Array,
    maximum_indices: Array,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Array | None,
    padding_idx: int = -1,
) -> Array:
    dtype = dtypes.accumulation(grad.dtype)
    grad = grad.astype(dtype)
    if mode == MAX:
        empty = (bag_size[: grad.shape[0]] == 0)[:, None]
        winners = jnp.where(empty, num_weights, maximum_indices)
        columns = jnp.arange(grad.shape[1])
        table = jnp.zeros((num_weights, grad.shape[1]), dtype)
        return table.at[winners, columns].add(grad, mode="drop")
    if mode == MEAN:
        grad = grad / jnp.maximum(bag_size[: grad.shape[0]], 1)[:, None]
    rows = rows_of(grad, offset2bag)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    return add_rows(rows, indices, num_weights, padding_idx, scale_grad_by_freq)


@lower(aten._embedding_bag_per_sample_weights_backward.default)
def _embedding_bag_per_sample_weights_backward(
    grad: Array,
    weight: Array,
    indices: Array,
    offsets: Array,
    offset2bag: Array,
    mode: int,
    padding_idx: int = -1,
) -> Array:
    dtype = dtypes.accumulation(grad.dtype)
    bag_of = _bag_of_each(indices, offsets)
    rows = rows_of(grad, bag_of).astype(dtype) * rows_of(weight, indices).astype(dtype)
    products = jnp.sum(rows, -1)
    return products if padding_idx < 0 else jnp.where(indices == padding_idx, 0, products)


def _bag_of_each(indices: Array, offsets: Array) -> Array:
    """The bag of each index: the number of offsets at or before its position, less one."""
    starts = jnp.zeros(indices.shape, offsets.dtype).at[offsets].add(1, mode="drop")
    return jnp.cumsum(starts) - 1


def _maxima(rows: Array, indices: Array, bag_of: Array, sizes: Array) -> tuple[Array, Array]:
    """The column maxima of each bag, and the first index that has each; 0 for empty bags."""
    bags, count = sizes.shape[0], indices.shape[0]
    if not count:
        return jnp.zeros((bags, rows.shape[1])), jnp.zeros((bags, rows.shape[1]), indices.dtype)
    top = jax.ops.segment_max(rows, bag_of, bags)
    best = rows == top.at[bag_of].get(mode="clip")
    places = jnp.where(best, jnp.arange(count)[:, None], count)
    first = jnp.minimum(jax.ops.segment_min(places, bag_of, bags), count - 1)
    empty = (sizes == 0)[:, None]
    return jnp.where(empty, 0, top), jnp.where(empty, 0, rows_of(indices, first))
