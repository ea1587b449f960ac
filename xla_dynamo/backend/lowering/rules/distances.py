"""Distances between rows, and their gradients: one product, or reductions of differences.

The differences of all pairs are never stored: XLA fuses them into the reduction. Euclidean
distances of many rows come from a matrix product, as in eager.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from xla_dynamo.backend.lowering.registry import lower

aten = torch.ops.aten

ALWAYS_PRODUCT, NEVER_PRODUCT = 1, 2


@lower(aten._cdist_forward.default)
def _cdist_forward(x1: Array, x2: Array, p: float, compute_mode: int | None) -> Array:
    many = x1.shape[-2] > 25 or x2.shape[-2] > 25
    product = many if not compute_mode else compute_mode == ALWAYS_PRODUCT
    if p == 2 and product:
        return _euclidean(x1, x2)
    return _norm(x1[..., :, None, :] - x2[..., None, :, :], p)


@lower(aten._cdist_backward.default)
def _cdist_backward(grad: Array, x1: Array, x2: Array, p: float, cdist: Array) -> Array:
    if not grad.size:
        return jnp.zeros_like(x1)
    difference = x1[..., :, None, :] - x2[..., None, :, :]
    return jnp.sum(_norm_gradient(grad, difference, p, cdist), -2)


@lower(aten._pdist_forward.default)
def _pdist_forward(x: Array, p: float = 2.0) -> Array:
    first, second = np.triu_indices(x.shape[0], 1)
    return _norm(x[:, None, :] - x[None, :, :], p)[first, second]


@lower(aten._pdist_backward.default)
def _pdist_backward(grad: Array, x: Array, p: float, pdist: Array) -> Array:
    pairs = np.triu_indices(x.shape[0], 1)

    def square(values: Array) -> Array:
        half = jnp.zeros((x.shape[0], x.shape[0]), values.dtype).at[pairs].set(values)
        return half + half.T

    return _cdist_backward(square(grad), x, x, p, square(pdist))


def _euclidean(x1: Array, x2: Array) -> Array:
    squares1, squares2 = (jnp.sum(x * x, -1) for x in (x1, x2))
    products = jnp.einsum("...pm,...rm->...pr", x1, x2)
    squared = squares1[..., :, None] + squares2[..., None, :] - 2 * products
    return jnp.sqrt(jnp.maximum(squared, 0))


def _norm(difference: Array, p: float) -> Array:
    size = jnp.abs(difference)
    if p == 0:
        return jnp.sum(jnp.where(jnp.isnan(size), size, size != 0), -1)
    if p == 1:
        return jnp.sum(size, -1)
    if p == 2:
        return jnp.sqrt(jnp.sum(size * size, -1))
    if math.isinf(p):
        return jnp.max(size, -1, initial=0)
    return jnp.sum(size**p, -1) ** (1 / p)


def _norm_gradient(grad: Array, difference: Array, p: float, norm: Array) -> Array:
    grad, norm = grad[..., None], norm[..., None]
    sign = jnp.sign(difference)
    if p == 0:
        return jnp.zeros_like(difference)
    if p == 1:
        return grad * sign
    if math.isinf(p):
        return grad * sign * (jnp.abs(difference) == norm)
    divisor = jnp.where(norm == 0, 1, norm)
    if p == 2:
        return jnp.where(norm == 0, 0, grad * difference / divisor)
    size = jnp.where(difference == 0, 1, jnp.abs(difference))
    slope = sign * size ** (p - 1) * grad / divisor ** (p - 1)
    return jnp.where((norm == 0) | (difference == 0), 0, slope)
