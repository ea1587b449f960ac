"""Ops with data-dependent shapes, padded to the largest possible size (ops/padded.py).

The valid elements come first: they are scattered to positions given by a cumulative sum. Each op
also returns their count.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import lower

ops = torch.ops.xla_dynamo


def _positions(chosen: Array) -> tuple[Array, Array]:
    """The position of each chosen element (others are out of range), and the number of them."""
    size = chosen.shape[0]
    dtype = np.int32 if size < 2**30 else np.int64
    running = jnp.cumsum(chosen.astype(dtype))
    # Distinct positions out of range, too, so that the scatter may rely on unique indices.
    positions = jnp.where(chosen, running - 1, size + jnp.arange(size, dtype=dtype))
    return positions, running[-1].astype(np.int64) if size else jnp.zeros((), np.int64)


def _moved(rows: Array, positions: Array) -> Array:
    """`rows` scattered along the first dimension; zeros where none goes."""
    return jnp.zeros_like(rows).at[positions].set(rows, mode="drop", unique_indices=True)


def leading_of(rows: Array, chosen: Array) -> tuple[Array, Array]:
    """The `chosen` (1-d bools) of `rows` first, zeros behind them, and how many there are."""
    positions, count = _positions(chosen)
    return _moved(rows, positions), count


@lower(ops.nonzero_padded.default)
def nonzero_padded(x: Array) -> tuple[Array, Array]:
    positions, count = _positions(x.reshape(-1) != 0)
    flat = _moved(jnp.arange(x.size, dtype=positions.dtype), positions)
    if x.ndim == 0:
        return jnp.zeros((0, 1), np.int64), count
    if x.size == 0:
        return jnp.zeros((x.ndim, 0), np.int64), count
    return jnp.stack(jnp.unravel_index(flat, x.shape)), count


@lower(ops.masked_select_padded.default)
def masked_select_padded(x: Array, mask: Array) -> tuple[Array, Array]:
    x, mask = jnp.broadcast_arrays(x, mask)
    return index_padded(x, mask, 0)


@lower(ops.index_padded.default)
def index_padded(x: Array, mask: Array, dim: int) -> tuple[Array, Array]:
    positions, count = _positions(mask.reshape(-1) != 0)
    rest = x.shape[dim + mask.ndim :]
    rows = jnp.moveaxis(x.reshape(*x.shape[:dim], mask.size, *rest), dim, 0)
    return jnp.moveaxis(_moved(rows, positions), 0, dim), count


@lower(ops.unique_padded.default)
def unique_padded(x: Array, dim: int | None, consecutive: bool) -> tuple[Array, ...]:
    slices = x.reshape(-1) if dim is None else jnp.moveaxis(x, dim, 0)
    size = slices.shape[0]
    rows = slices.reshape(size, math.prod(slices.shape[1:]))
    order = jnp.arange(size) if consecutive else _ascending(rows)
    ranked = rows[order]
    first = jnp.ones(size, bool).at[1:].set((ranked[1:] != ranked[:-1]).any(1))
    positions, count = _positions(first)
    group = jnp.cumsum(first) - 1
    values = _moved(slices[order], positions)
    inverse = jnp.zeros(size, np.int64).at[order].set(group, unique_indices=True)
    counts = jnp.zeros(size, np.int64).at[group].add(1, indices_are_sorted=True)
    if dim is None:
        return values, inverse.reshape(x.shape), counts, count
    return jnp.moveaxis(values, 0, dim), inverse, counts, count


def _ascending(rows: Array) -> Array:
    """The permutation that sorts `rows` lexicographically."""

    def by_column(step: Array, order: Array) -> Array:
        column = rows[order, rows.shape[1] - 1 - step]
        return order[jnp.argsort(column, stable=True)]

    return lax.fori_loop(0, rows.shape[1], by_column, jnp.arange(rows.shape[0]))


@lower(ops.bincount_size.default)
def bincount_size(x: Array, minlength: int) -> Array:
    if x.size == 0:
        return jnp.asarray(minlength)
    largest = x.max().astype(np.int64)
    return jnp.where(x.min() < 0, -1, jnp.maximum(largest + 1, minlength))


@lower(ops.repeats_size.default)
def repeats_size(repeats: Array) -> Array:
    return jnp.where((repeats < 0).any(), -1, repeats.sum(dtype=np.int64))


@lower(ops.sized_bincount.default)
def sized_bincount(x: Array, weights: Array | None, size: int) -> Array:
    if weights is None:
        return jnp.zeros(size, np.int64).at[x].add(1, mode="promise_in_bounds")
    dtype = np.float32 if weights.dtype == np.float32 else np.float64
    return jnp.zeros(size, dtype).at[x].add(weights.astype(dtype), mode="promise_in_bounds")
