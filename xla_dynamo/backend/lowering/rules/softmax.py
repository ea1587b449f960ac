"""Softmax, log-softmax and their gradients -> a maximum, exponentials and row sums.

Written in the form that XLA's softmax fusions look for; in float32 for the 16-bit floats.
"""

from __future__ import annotations

import jax.numpy as jnp
import torch
from jax import Array

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import lower

from . import _dims

aten = torch.ops.aten


@lower(aten._softmax.default)
def _softmax(x: Array, dim: int, half_to_float: bool) -> Array:
    weights = jnp.exp(_below_top(x, dim))
    return _like(weights / _sum(weights, dim), x, half_to_float)


@lower(aten._log_softmax.default)
def _log_softmax(x: Array, dim: int, half_to_float: bool) -> Array:
    below = _below_top(x, dim)
    return _like(below - jnp.log(_sum(jnp.exp(below), dim)), x, half_to_float)


@lower(aten._softmax_backward_data.default)
def _softmax_backward_data(grad: Array, output: Array, dim: int, input_dtype: torch.dtype) -> Array:
    total = dtypes.accumulation(output.dtype)
    grad, output = grad.astype(total), output.astype(total)
    return (output * (grad - _sum(grad * output, dim))).astype(dtypes.to_numpy(input_dtype))


@lower(aten._log_softmax_backward_data.default)
def _log_softmax_backward_data(
    grad: Array, output: Array, dim: int, input_dtype: torch.dtype
) -> Array:
    total = dtypes.accumulation(output.dtype)
    grad, output = grad.astype(total), output.astype(total)
    return (grad - jnp.exp(output) * _sum(grad, dim)).astype(dtypes.to_numpy(input_dtype))


@lower(aten._masked_softmax.default)
def _masked_softmax(
    x: Array, mask: Array, dim: int | None = None, mask_type: int | None = None
) -> Array:
    """Softmax of what `mask` leaves (False); a key padding mask, type 1, is [batch, keys]."""
    if mask_type == 1:
        mask = mask[:, None, None, :]
    return _softmax(jnp.where(mask, -jnp.inf, x), -1 if dim is None else dim, False)


@lower(aten._masked_softmax_backward.default)
def _masked_softmax_backward(
    grad: Array, output: Array, mask: Array, dim: int | None = None
) -> Array:
    total = dtypes.accumulation(output.dtype)
    grad, output = (jnp.where(mask, 0, each).astype(total) for each in (grad, output))
    return output * (grad - _sum(grad * output, -1 if dim is None else dim))


def _below_top(x: Array, dim: int) -> Array:
    x = x.astype(dtypes.accumulation(x.dtype))
    if x.ndim == 0:
        return x - x
    return x - jnp.max(x, _dims.axis(dim, x.ndim), keepdims=True, initial=-jnp.inf)


def _sum(x: Array, dim: int) -> Array:
    return x if x.ndim == 0 else jnp.sum(x, _dims.axis(dim, x.ndim), keepdims=True)


def _like(out: Array, x: Array, half_to_float: bool) -> Array:
    return out if half_to_float else out.astype(x.dtype)
