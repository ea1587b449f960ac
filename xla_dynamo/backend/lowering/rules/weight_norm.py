"""The gradient of weight normalization: one reduction and one elementwise pass."""

from __future__ import annotations

import jax.numpy as jnp
import torch
from jax import Array

from xla_dynamo.backend.lowering.registry import lower

aten = torch.ops.aten


@lower(aten._weight_norm_interface_backward.default)
def _weight_norm_interface_backward(
    grad_w: Array, saved_v: Array, saved_g: Array, saved_norms: Array, dim: int
) -> tuple[Array, Array]:
    """For w = v * g / |v|, with the norm over all axes but `dim`."""
    axes = tuple(axis for axis in range(saved_v.ndim) if axis != dim % saved_v.ndim)
    norms = saved_norms.astype(saved_v.dtype)
    along = jnp.sum(grad_w * saved_v, axes, keepdims=True) / norms
    grad_v = saved_g / norms * (grad_w - saved_v * along / norms)
    return grad_v, along
