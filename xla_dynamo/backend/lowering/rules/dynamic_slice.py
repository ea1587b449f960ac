"""Slices whose start is a tensor (ops/fused.py), writes to them, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jax import Array, lax
from jax import numpy as jnp

from xla_dynamo.backend.lowering.registry import lower

from ._dims import axis

ops = torch.ops.xla_dynamo


@lower(ops.dynamic_slice.default)
def slice_at(x: Array, dim: int, start: Array, length: int) -> Array:
    return lax.dynamic_slice_in_dim(x, start.reshape(()), length, axis(dim, x.ndim))


@lower(ops.dynamic_slice_backward.default)
def slice_at_backward(grad: Array, sizes: Sequence[int], dim: int, start: Array) -> Array:
    zeros = jnp.zeros(tuple(sizes), grad.dtype)
    return lax.dynamic_update_slice_in_dim(zeros, grad, start.reshape(()), axis(dim, grad.ndim))


@lower(ops.dynamic_update.default)
def update_at(x: Array, part: Array, dim: int, start: Array) -> Array:
    return lax.dynamic_update_slice_in_dim(x, part, start.reshape(()), axis(dim, x.ndim))
