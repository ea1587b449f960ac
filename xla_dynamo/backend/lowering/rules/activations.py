"""Activations that PyTorch does not decompose, and their gradients: elementwise formulas.

They are computed in float32 for the 16-bit floats and rounded once, as in eager.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import lower

from ._numerics import at_least, at_most, divided
from ._promotion import is_array, promote, result_dtype

aten = torch.ops.aten


def _rounded_once(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` computed in the accumulation dtype, its result in the arrays' common dtype."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Array:
        common = result_dtype(*filter(is_array, args))
        wide = dtypes.accumulation(common)
        return function(*(a.astype(wide) if is_array(a) else a for a in args), **kwargs).astype(
            common
        )

    return wrapped


@lower(aten.gelu.default)
@_rounded_once
def gelu(x: Array, *, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + jnp.tanh(_tanh_argument(x)))
    return 0.5 * x * (1 + lax.erf(x * math.sqrt(0.5)))


@lower(aten.gelu_backward.default)
@_rounded_once
def gelu_backward(grad: Array, x: Array, *, approximate: str = "none") -> Array:
    if approximate == "tanh":
        tanh = jnp.tanh(_tanh_argument(x))
        slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        return grad * 0.5 * (1 + tanh + x * (1 - tanh * tanh) * slope)
    below = 0.5 * (1 + lax.erf(x * math.sqrt(0.5)))
    density = jnp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return grad * (below + x * density)


@lower(torch.ops.xla_dynamo.relu_backward.default)
def relu_backward(grad: Array, x: Array) -> Array:
    return lax.select(x <= 0, jnp.zeros_like(grad), grad)


@lower(torch.ops.xla_dynamo.hardtanh_backward.default)
def hardtanh_backward(grad: Array, x: Array, low: float, high: float) -> Array:
    return jnp.where((x <= low) | (x >= high), 0, grad)


@lower(torch.ops.xla_dynamo.hardswish.default)
def hardswish(x: Array) -> Array:
    sixths = at_most(at_least(x + 3, jnp.asarray(0, x.dtype)), jnp.asarray(6, x.dtype))
    return divided(x * sixths, 6)


@lower(torch.ops.xla_dynamo.hardswish_backward.default)
def hardswish_backward(grad: Array, x: Array) -> Array:
    inside = jnp.where(x < 3, grad * (divided(x, 3) + 0.5), grad)
    return jnp.where(x <= -3, 0, inside)


@lower(torch.ops.xla_dynamo.leaky_relu_backward.default)
def leaky_relu_backward(grad: Array, x: Array, slope: float) -> Array:
    return jnp.where(x > 0, grad, grad * slope)


@lower(aten.elu.default)
@_rounded_once
def elu(x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    return jnp.where(x < 0, jnp.expm1(x * input_scale) * (alpha * scale), x * scale)


@lower(aten.leaky_relu.default)
@_rounded_once
def leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    return jnp.where(x > 0, x, x * negative_slope)


@lower(aten.rrelu_with_noise_backward.default)
@_rounded_once
def rrelu_with_noise_backward(
    grad: Array, x: Array, noise: Array, lower: float, upper: float, training: bool, *_: bool
) -> Array:
    if training and upper - lower > 1e-6:
        return grad * noise
    return jnp.where(x > 0, grad, grad * ((lower + upper) / 2))


@lower(aten.hardtanh.default)
def hardtanh(x: Array, min_val: float = -1, max_val: float = 1) -> Array:
    return at_most(at_least(x, jnp.asarray(min_val, x.dtype)), jnp.asarray(max_val, x.dtype))


@lower(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_backward(grad: Array, x: Array, lambd: float) -> Array:
    grad, x = promote(grad, x)
    return jnp.where((x >= -lambd) & (x <= lambd), 0, grad)


def _tanh_argument(x: Array) -> Array:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
