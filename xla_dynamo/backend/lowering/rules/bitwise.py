"""Bitwise and logical operations on integers and bools, and the hash that xors bits.

Shifts by a negative amount or by the width or more give 0 (or the sign, for right shifts of signed
integers): what XLA's shifts define and eager does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

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


lower(aten.bitwise_not.default)(jnp.bitwise_not)
lower(aten.logical_not.default)(jnp.logical_not)
lower(aten.logical_and.default)(jnp.logical_and)
lower(aten.logical_or.default)(jnp.logical_or)
lower(aten.logical_xor.default)(jnp.logical_xor)

for _op, _alias, _function in (
    (aten.bitwise_and, aten.__and__, jnp.bitwise_and),
    (aten.bitwise_or, aten.__or__, jnp.bitwise_or),
    (aten.bitwise_xor, aten.__xor__, jnp.bitwise_xor),
):
    lower(_op.Tensor, _op.Scalar, _op.Scalar_Tensor)(partial(compute, _function))
    lower(_alias.Tensor, _alias.Scalar)(partial(compute, _function))


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
