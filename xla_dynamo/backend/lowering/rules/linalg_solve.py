"""Cholesky and LU factors, and solves with them, by lax.linalg.

PyTorch's pivots count from 1, JAX's from 0. `info` is LAPACK's: 0, or the index (from 1) at which
the factorization failed. A failed Cholesky factor is NaN, where eager leaves an incomplete one; LU
factors are eager's.
"""

from __future__ import annotations

from typing import Any

import torch
from jax import Array, lax
from jax import numpy as jnp

from xla_dynamo.backend.lowering.registry import Unsupported, lower

aten = torch.ops.aten


@lower(aten.linalg_cholesky_ex.default)
def linalg_cholesky_ex(a: Array, *, upper: bool = False, **_: Any) -> tuple[Array, Array]:
    factor = cholesky(a, upper)
    diagonal = jnp.diagonal(factor, axis1=-2, axis2=-1)
    failed = jnp.isnan(diagonal).any(-1)
    source = _adjoint(a) if upper else a
    none = jnp.zeros(failed.shape, jnp.int32)
    info = lax.cond(failed.any(), lambda: _first_failure(source, failed), lambda: none)
    return factor, info


# aten.cholesky is gone from torch 2.15.
@lower(*([aten.cholesky.default] if hasattr(aten, "cholesky") else []))
def cholesky(a: Array, upper: bool = False) -> Array:
    # As in eager, only one triangle is read.
    lower_half = jnp.tril(lax.linalg.cholesky(_adjoint(a) if upper else a, symmetrize_input=False))
    return _adjoint(lower_half) if upper else lower_half


def _first_failure(a: Array, failed: Array) -> Array:
    """The order of the first leading minor that is not positive definite, by bisection."""
    n = a.shape[-1]
    index, identity = jnp.arange(n), jnp.eye(n, dtype=a.dtype)

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        good, bad = bounds
        middle = (good + bad) // 2
        inside = index < middle[..., None]
        leading = jnp.where(inside[..., None] & inside[..., None, :], a, identity)
        fails = jnp.isnan(lax.linalg.cholesky(leading, symmetrize_input=False)).any((-2, -1))
        return jnp.where(fails, good, middle), jnp.where(fails, middle, bad)

    start = jnp.zeros(failed.shape, jnp.int32), jnp.full(failed.shape, n, jnp.int32)
    _, order = lax.fori_loop(0, n.bit_length(), halve, start)
    return jnp.where(failed, order, 0)


@lower(aten.cholesky_solve.default)
def cholesky_solve(b: Array, factor: Array, upper: bool = False) -> Array:
    """Solve A x = b, for A = L L^H."""
    factor, b = broadcast_batches(factor, b)
    half = _adjoint(factor) if upper else factor
    return _triangular(half, _triangular(half, b), adjoint=True)


@lower(aten.cholesky_inverse.default)
def cholesky_inverse(factor: Array, upper: bool = False) -> Array:
    identity = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    return cholesky_solve(identity, factor, upper)


@lower(aten.linalg_lu_factor_ex.default)
def linalg_lu_factor_ex(
    a: Array, *, pivot: bool = True, **_ignored: Any
) -> tuple[Array, Array, Array]:
    _require_pivot(pivot)
    lu, pivots, _ = lax.linalg.lu(a)
    zero = jnp.diagonal(lu, axis1=-2, axis2=-1) == 0
    if zero.shape[-1] == 0:
        return lu, pivots + 1, jnp.zeros(a.shape[:-2], jnp.int32)
    first = lax.argmax(zero, zero.ndim - 1, jnp.int32) + 1
    return lu, pivots + 1, jnp.where(zero.any(-1), first, 0)


@lower(aten.linalg_lu.default)
def linalg_lu(a: Array, *, pivot: bool = True) -> tuple[Array, Array, Array]:
    _require_pivot(pivot)
    lu, _, permutation = lax.linalg.lu(a)
    return _permutation_matrix(permutation, a.dtype), *_halves(lu)


@lower(aten.lu_unpack.default)
def lu_unpack(
    lu: Array, pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Array, Array, Array]:
    empty = jnp.zeros((0,), lu.dtype)
    halves = _halves(lu) if unpack_data else (empty, empty)
    if not unpack_pivots:
        return empty, *halves
    permutation = lax.linalg.lu_pivots_to_permutation(pivots - 1, lu.shape[-2])
    return _permutation_matrix(permutation, lu.dtype), *halves


@lower(aten.linalg_lu_solve.default)
def linalg_lu_solve(
    lu: Array, pivots: Array, b: Array, *, left: bool = True, adjoint: bool = False
) -> Array:
    permutation = lax.linalg.lu_pivots_to_permutation(pivots - 1, lu.shape[-2])
    return _lu_solve(lu, permutation, b, left, adjoint)


@lower(aten._linalg_solve_ex.default)
def linalg_solve_ex(
    a: Array, b: Array, *, left: bool = True, **_: Any
) -> tuple[Array, Array, Array, Array]:
    lu, pivots, info = linalg_lu_factor_ex(a)
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    solved = linalg_lu_solve(lu, pivots, b[..., None] if is_vector else b, left=left)
    return solved[..., 0] if is_vector else solved, lu, pivots, info


@lower(aten.linalg_inv_ex.default)
def linalg_inv_ex(a: Array, **_: Any) -> tuple[Array, Array]:
    lu, pivots, info = linalg_lu_factor_ex(a)
    identity = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return linalg_lu_solve(lu, pivots, identity), info


@lower(aten.linalg_solve_triangular.default)
def linalg_solve_triangular(
    a: Array, b: Array, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    a, b = broadcast_batches(a, b)
    return lax.linalg.triangular_solve(
        a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular
    )


@lower(aten.triangular_solve.default)
def triangular_solve(
    b: Array, a: Array, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Array, Array]:
    a, b = broadcast_batches(a, b)
    solved = lax.linalg.triangular_solve(
        a, b, left_side=True, lower=not upper, transpose_a=transpose, unit_diagonal=unitriangular
    )
    return solved, a


def broadcast_batches(a: Array, b: Array) -> tuple[Array, Array]:
    """Two stacks of matrices with one batch shape."""
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    return left, right


def _lu_solve(lu: Array, permutation: Array, b: Array, left: bool, adjoint: bool) -> Array:
    if not left:  # X A = B is A^H X^H = B^H
        return _adjoint(_lu_solve(lu, permutation, _adjoint(b), True, not adjoint))
    lu, b = broadcast_batches(lu, b)
    order = jnp.broadcast_to(permutation, lu.shape[:-1])
    if adjoint:  # A^H = U^H L^H P^T
        half = _triangular(lu, b, upper=True, adjoint=True)
        solved = _triangular(lu, half, unit=True, adjoint=True)
        return jnp.take_along_axis(solved, jnp.argsort(order, axis=-1)[..., None], axis=-2)
    permuted = jnp.take_along_axis(b, order[..., None], axis=-2)
    return _triangular(lu, _triangular(lu, permuted, unit=True), upper=True)


def _triangular(
    a: Array, b: Array, *, upper: bool = False, unit: bool = False, adjoint: bool = False
) -> Array:
    conjugate = adjoint and jnp.iscomplexobj(a)
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=True,
        lower=not upper,
        transpose_a=adjoint,
        conjugate_a=conjugate,
        unit_diagonal=unit,
    )


def _halves(lu: Array) -> tuple[Array, Array]:
    rank = min(lu.shape[-2:])
    unit = jnp.eye(lu.shape[-2], rank, dtype=lu.dtype)
    return jnp.tril(lu[..., :, :rank], -1) + unit, jnp.triu(lu[..., :rank, :])


def _permutation_matrix(permutation: Array, dtype: jnp.dtype) -> Array:
    rows = jnp.arange(permutation.shape[-1], dtype=permutation.dtype)[:, None]
    return (permutation[..., None, :] == rows).astype(dtype)


def _adjoint(a: Array) -> Array:
    return jnp.conj(jnp.swapaxes(a, -1, -2))


def _require_pivot(pivot: bool) -> None:
    if not pivot:
        raise Unsupported(
            "XLA's LU factorization exchanges rows, and pivot=False is asked for.",
            "Pass pivot=True.",
        )
