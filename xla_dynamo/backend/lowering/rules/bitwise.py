"""Bitwise and logical operations on integers and bools, and the hash that xors bits.

Shifts by a negative amount or by the width or more give 0 (or the sign, for right shifts of signed
integers): what XLA's shifts define and eager does.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import Unsupported, lower

from ._dims import axes
from ._numerics import exp2
from ._promotion import compute, is_inexact, promote, result_dtype

aten = torch.ops.aten

Operand = Array | int | bool | float


@lower(aten.bitwise_not.default)
def bitwise_not(x: Array) -> Array:
    return jnp.bitwise_not(x)


@lower(aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, aten.bitwise_and.Scalar_Tensor)
@lower(aten.__and__.Tensor, aten.__and__.Scalar)
def bitwise_and(x: Operand, y: Operand) -> Array:
    return compute(jnp.bitwise_and, x, y)


@lower(aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, aten.bitwise_or.Scalar_Tensor)
@lower(aten.__or__.Tensor, aten.__or__.Scalar)
def bitwise_or(x: Operand, y: Operand) -> Array:
    return compute(jnp.bitwise_or, x, y)


@lower(aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, aten.bitwise_xor.Scalar_Tensor)
@lower(aten.__xor__.Tensor, aten.__xor__.Scalar)
def bitwise_xor(x: Operand, y: Operand) -> Array:
    return compute(jnp.bitwise_xor, x, y)


@lower(
    aten.bitwise_left_shift.Tensor,
    aten.bitwise_left_shift.Tensor_Scalar,
    aten.bitwise_left_shift.Scalar_Tensor,
    aten.__lshift__.Tensor,
    aten.__lshift__.Scalar,
)
def left_shift(x: Operand, y: Operand) -> Array:
    if is_inexact(result_dtype(x, y)):
        return compute(lambda x, y: x * exp2(y), x, y)
    return lax.shift_left(*jnp.broadcast_arrays(*promote(x, y)))


@lower(
    aten.bitwise_right_shift.Tensor,
    aten.bitwise_right_shift.Tensor_Scalar,
    aten.bitwise_right_shift.Scalar_Tensor,
    aten.__rshift__.Tensor,
    aten.__rshift__.Scalar,
)
def right_shift(x: Operand, y: Operand) -> Array:
    if is_inexact(result_dtype(x, y)):
        return compute(lambda x, y: x / exp2(y), x, y)
    x, y = jnp.broadcast_arrays(*promote(x, y))
    if np.issubdtype(x.dtype, np.signedinteger):
        return lax.shift_right_arithmetic(x, y)
    return lax.shift_right_logical(x, y)


@lower(aten.logical_not.default)
def logical_not(x: Array) -> Array:
    return x == 0


@lower(aten.logical_and.default)
def logical_and(x: Array, y: Array) -> Array:
    return (x != 0) & (y != 0)


@lower(aten.logical_or.default)
def logical_or(x: Array, y: Array) -> Array:
    return (x != 0) | (y != 0)


@lower(aten.logical_xor.default)
def logical_xor(x: Array, y: Array) -> Array:
    return (x != 0) ^ (y != 0)


@lower(aten.hash_tensor.default)
def hash_tensor(
    x: Array, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0
) -> Array:
    """The xor of all elements, as the bits of float64 or int64. XLA takes subnormals for 0."""
    if mode != 0:
        raise Unsupported(f"It asks for mode {mode}, and only mode 0 is known.")
    wide = x.astype(np.float64 if is_inexact(x.dtype) else np.int64)
    bits = lax.bitcast_convert_type(wide, np.uint64)
    reduced = axes(dim, x.ndim)
    result = lax.reduce(bits, np.uint64(0), lax.bitwise_xor, reduced)
    return jnp.expand_dims(result, reduced) if keepdim else result
