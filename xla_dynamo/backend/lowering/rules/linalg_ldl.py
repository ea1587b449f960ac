"""LDL factors of symmetric and Hermitian matrices, and solves with them -> a loop over columns.

Pivots are chosen as Bunch and Kaufman do.

The result is LAPACK's: A = P L D L^T P^T with D of 1x1 and 2x2 blocks, in the lower triangle. A
pivot k > 0 says that row k was moved here; two equal pivots -k, that a 2x2 block begins here and
row k was moved to its second row. Each step of the loop is one column, all rows at once.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from xla_dynamo.backend.lowering.registry import lower

aten = torch.ops.aten

Array = jax.Array

# The ratio of pivot to column that bounds the growth of 1x1 and 2x2 steps alike.
_ALPHA = (1 + math.sqrt(17)) / 8


@lower(aten.linalg_ldl_factor_ex.default)
def linalg_ldl_factor_ex(
    a: Array, *, hermitian: bool = False, check_errors: bool = False
) -> tuple[Array, Array, Array]:
    conjugate = hermitian and jnp.iscomplexobj(a)
    n, batch = a.shape[-1], a.shape[:-2]
    flat = a.reshape(math.prod(batch), n, n)
    if flat.size == 0:
        return a, jnp.zeros(a.shape[:-1], np.int32), jnp.zeros(batch, np.int32)
    factors, pivots, info = jax.vmap(lambda matrix: _factor(matrix, conjugate))(flat)
    return factors.reshape(a.shape), pivots.reshape(a.shape[:-1]), info.reshape(batch)


@lower(aten.linalg_ldl_solve.default)
def linalg_ldl_solve(ld: Array, pivots: Array, b: Array, *, hermitian: bool = False) -> Array:
    conjugate = hermitian and jnp.iscomplexobj(ld)
    batch = jnp.broadcast_shapes(ld.shape[:-2], b.shape[:-2])
    n, columns, count = b.shape[-2], b.shape[-1], math.prod(batch)
    if count * n * columns == 0:
        return jnp.zeros((*batch, n, columns), b.dtype)
    ld = jnp.broadcast_to(ld, (*batch, n, n)).reshape(count, n, n)
    pivots = jnp.broadcast_to(pivots, (*batch, n)).reshape(count, n)
    right = jnp.broadcast_to(b, (*batch, n, columns)).reshape(count, n, columns)
    solved = jax.vmap(lambda a, p, b: _solve(a, p, b, conjugate))(ld, pivots, right)
    return solved.reshape(*batch, n, columns)


def _factor(a: Array, conjugate: bool) -> tuple[Array, Array, Array]:
    n = a.shape[0]
    index = jnp.arange(n, dtype=np.int32)
    below = jnp.tril(a, -1)
    diagonal = jnp.diag(jnp.diag(a).real.astype(a.dtype) if conjugate else jnp.diag(a))
    whole = below + diagonal + (jnp.conj(below.T) if conjugate else below.T)

    def step(k: Array, state: Any) -> Any:
        a, pivots, info, second = state
        moved, double = _pivot(a, k, index)
        active = ~second
        failed = jnp.abs(a[:, k]).max(where=index >= k, initial=0) == 0
        info = jnp.where(active & failed & (info == 0), k + 1, info)
        double &= active & ~failed
        moved = jnp.where(active & ~failed, moved, k)
        last = jnp.minimum(k + double, n - 1)
        order = _swap(index, last, moved)
        trailing = (index >= k)[:, None] & (index >= k)
        a = jnp.where(trailing, a[order][:, order], a)
        written = jnp.where(double, -(moved + 1), moved + 1)
        here = active & ((index == k) | (double & (index == last)))
        pivots = jnp.where(here, written, pivots)
        a = jnp.where(active, _eliminate(a, k, last, double, index, conjugate), a)
        return a, pivots, info, double

    start = (whole, jnp.zeros(n, np.int32), jnp.int32(0), jnp.bool_(False))
    a, pivots, info, _ = lax.fori_loop(0, n, step, start)
    return jnp.tril(a), pivots, info


def _swap(index: Array, i: Array, j: Array) -> Array:
    """The order that exchanges i and j."""
    return jnp.where(index == i, j, jnp.where(index == j, i, index))


def _size(x: Array) -> Array:
    """What LAPACK compares: |re| + |im|."""
    return jnp.abs(x.real) + jnp.abs(x.imag) if jnp.iscomplexobj(x) else jnp.abs(x)


def _pivot(a: Array, k: Array, index: Array) -> tuple[Array, Array]:
    """Which row comes to the diagonal at step k, and whether as the second of a 2x2 block."""
    here = _size(a[k, k])
    column = jnp.where(index > k, _size(a[:, k]), 0)
    largest = jnp.argmax(column).astype(np.int32)
    in_column = column[largest]
    row = jnp.where((index >= k) & (index != largest), _size(a[largest]), 0)
    in_row = row.max()
    stays = (here >= _ALPHA * in_column) | (here * in_row >= _ALPHA * in_column * in_column)
    single = _size(a[largest, largest]) >= _ALPHA * in_row
    return jnp.where(stays, k, largest), ~stays & ~single


def _eliminate(
    a: Array, k: Array, last: Array, double: Array, index: Array, conjugate: bool
) -> Array:
    """Subtract the block's part from the trailing matrix; its columns become those of L."""
    rows = index > last
    columns = jnp.where(rows[:, None], a[:, jnp.stack([k, last])], 0)
    factor = columns @ _inverse(a, k, last, double, conjugate)
    other = jnp.conj(columns) if conjugate else columns
    a = a - factor @ other.T
    a = a.at[:, k].set(jnp.where(rows, factor[:, 0], a[:, k]))
    return a.at[:, last].set(jnp.where(rows & double, factor[:, 1], a[:, last]))


def _inverse(a: Array, k: Array, last: Array, double: Array, conjugate: bool) -> Array:
    """The inverse of the block of D at k, as 2x2; of a single pivot, with zeros around it."""
    first, second, below = a[k, k], a[last, last], a[last, k]
    if conjugate:
        first, second = first.real.astype(a.dtype), second.real.astype(a.dtype)
    above = jnp.conj(below) if conjugate else below
    zero = jnp.zeros((), a.dtype)
    single = jnp.where(first == 0, 0, 1 / first)
    whole = jnp.stack([second, -above, -below, first]) / (first * second - above * below)
    lone = jnp.stack([single, zero, zero, zero])
    return jnp.where(double, whole, lone).reshape(2, 2)


def _solve(ld: Array, pivots: Array, b: Array, conjugate: bool) -> Array:
    n = ld.shape[0]
    index = jnp.arange(n, dtype=np.int32)

    def begins(inside: Array, pivot: Array) -> tuple[Array, Array]:
        double = (pivot < 0) & ~inside
        return double, double

    _, doubles = lax.scan(begins, jnp.bool_(False), pivots)
    seconds = jnp.concatenate([jnp.zeros(1, np.bool_), doubles[:-1]])

    def block(k: Array) -> tuple[Array, Array, Array]:
        """The places of the block at k, the exchange that it began with, its columns of L."""
        last = jnp.minimum(k + doubles[k], n - 1)
        order = _swap(index, last, jnp.abs(pivots[k]) - 1)
        both = jnp.stack([k, last])
        shown = (index > last)[:, None] & jnp.stack([jnp.bool_(True), doubles[k]])
        return both, order, jnp.where(shown, ld[:, both], 0)

    def forward(k: Array, b: Array) -> Array:
        both, order, columns = block(k)
        moved = b[order]
        rows = moved[both]
        moved = moved - columns @ rows
        solved = _inverse(ld, k, both[1], doubles[k], conjugate) @ rows
        moved = moved.at[k].set(solved[0])
        moved = moved.at[both[1]].set(jnp.where(doubles[k], solved[1], moved[both[1]]))
        return jnp.where(seconds[k], b, moved)

    def backward(step: Array, b: Array) -> Array:
        both, order, columns = block(n - 1 - step)
        rows = (jnp.conj(columns) if conjugate else columns).T @ b
        return jnp.where(seconds[n - 1 - step], b, b.at[both].add(-rows)[order])

    return lax.fori_loop(0, n, backward, lax.fori_loop(0, n, forward, b))
