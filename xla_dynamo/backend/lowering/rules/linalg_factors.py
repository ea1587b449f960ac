"""QR, singular values, eigenvalues and the functions of matrices built on them, to lax.linalg.

Signs and phases of singular vectors and eigenvectors are the platform's: on CPU LAPACK's, like
eager's. Outputs that an op's mode leaves out have the shape [0], as in eager. On TPUs, JAX's own
algorithm gives singular vectors; with counters of 64 bits, libtpu 0.0.42.1 ends the process on it.
"""

from __future__ import annotations

import math

import torch
from jax import Array, lax
from jax import numpy as jnp
from jax.scipy.linalg import expm

from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.lowering.dtypes import accumulation
from xla_dynamo.backend.lowering.registry import lower

aten = torch.ops.aten

# Norms up to which no squaring is needed: by jax's Padé approximant in float64, by Taylor's
# polynomial in float32.
_UNSCALED_NORM = {64: 3.5, 32: 2.4}
_DEGREE = 16


@lower(aten.linalg_qr.default)
def linalg_qr(a: Array, mode: str = "reduced") -> tuple[Array, Array]:
    if mode == "r":
        return jnp.zeros((0,), a.dtype), jnp.linalg.qr(a, mode="r")
    q, r = lax.linalg.qr(a, full_matrices=mode == "complete")
    return q, r


@lower(aten.geqrf.default)
def geqrf(a: Array) -> tuple[Array, Array]:
    reflectors, taus = jnp.linalg.qr(a, mode="raw")
    return jnp.swapaxes(reflectors, -1, -2), taus


lower(aten.linalg_householder_product.default)(lax.linalg.householder_product)


@lower(aten.ormqr.default)
def ormqr(a: Array, taus: Array, c: Array, left: bool = True, transpose: bool = False) -> Array:
    return jax_adapter.ormqr(a, taus, c, left=left, transpose=transpose)


@lower(aten._linalg_svd.default, narrow_on="tpu")
def linalg_svd(
    a: Array, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Array, Array, Array]:
    if not compute_uv:
        empty = jnp.zeros((0,), a.dtype)
        return empty, jnp.linalg.svd(a, compute_uv=False), empty
    u, s, vh = jnp.linalg.svd(a, full_matrices=full_matrices)
    return u, s, vh


@lower(aten._linalg_eigh.default)
def linalg_eigh(a: Array, uplo: str = "L", compute_v: bool = True) -> tuple[Array, Array]:
    vectors, values = lax.linalg.eigh(a, lower=uplo.upper() == "L", symmetrize_input=False)
    return values, vectors if compute_v else jnp.zeros((0,), a.dtype)


@lower(aten.linalg_eig.default)
def linalg_eig(a: Array) -> tuple[Array, Array]:
    values, vectors = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return values, vectors


@lower(aten._linalg_eigvals.default, aten.linalg_eigvals.default)
def linalg_eigvals(a: Array) -> Array:
    (values,) = lax.linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    return values


@lower(aten.linalg_matrix_exp.default)
def linalg_matrix_exp(a: Array) -> Array:
    if a.size == 0:
        return a
    a = a.astype(accumulation(a.dtype))
    # Scaling and squaring is done here, as often as the batch's largest matrix needs: jax's own
    # runs a fixed number of squarings over a batch, and gives NaN where they do not suffice.
    norm = jnp.abs(a).sum(-2).max(-1)
    bits = jnp.finfo(a.dtype).bits
    needed = jnp.ceil(jnp.log2(jnp.maximum(norm, 1) / _UNSCALED_NORM[bits]))
    squarings = jnp.where(jnp.isfinite(needed), jnp.maximum(needed, 0), 0)
    scaled = a * jnp.exp2(-squarings)[..., None, None].astype(a.dtype)

    def square(step: Array, power: Array) -> Array:
        return jnp.where((step < squarings)[..., None, None], power @ power, power)

    count = squarings.max().astype(jnp.int32)
    root = expm(scaled, max_squarings=0) if bits == 64 else _taylor(scaled)
    return lax.fori_loop(0, count, square, root)


def _taylor(a: Array) -> Array:
    """exp(a) for matrices of small norm, in 7 products (Paterson and Stockmeyer, 1973).

    Its errors in float32 are half of a Padé approximant's, whose denominator has to be solved with.
    """
    second = a @ a
    powers = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape), a, second, second @ a
    fourth = second @ second
    total = powers[0] * (1 / math.factorial(_DEGREE))
    for first in range(_DEGREE - 4, -1, -4):
        terms = [powers[k] * (1 / math.factorial(first + k)) for k in (3, 2, 1, 0)]
        total = total @ fourth + sum(terms[1:], terms[0])
    return total


@lower(aten.linalg_pinv.atol_rtol_tensor, narrow_on="tpu")
def linalg_pinv(
    a: Array, *, atol: Array | None = None, rtol: Array | None = None, hermitian: bool = False
) -> Array:
    rows, columns = a.shape[-2:]
    if rows == 0 or columns == 0:
        return jnp.zeros((*a.shape[:-2], columns, rows), a.dtype)
    if hermitian:
        u, s = lax.linalg.eigh(a, lower=True, symmetrize_input=False)
        vh = jnp.conj(jnp.swapaxes(u, -1, -2))
    else:
        u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    magnitude = jnp.abs(s)
    default = jnp.asarray(jnp.finfo(a.dtype).eps * max(rows, columns), s.dtype)
    if rtol is None:
        rtol = default if atol is None else jnp.where(atol > 0, 0, default)
    relative = rtol[..., None] * magnitude.max(-1, keepdims=True)
    floor = relative if atol is None else jnp.maximum(atol[..., None], relative)
    inverse = jnp.where(magnitude > floor, 1 / s, 0).astype(a.dtype)
    v, uh = (jnp.conj(jnp.swapaxes(x, -1, -2)) for x in (vh, u))
    return (v * inverse[..., None, :]) @ uh
