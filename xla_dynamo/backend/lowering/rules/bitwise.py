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


def left_shift(x: Operand, y: Operand) -> Array:
    if is_inexact(result_dtype(x, y)):
        return compute(lambda x, y: x * exp2(y), x, y)
    return lax.shift_left(*jnp.broadcast_arrays(*promote(x, y)))


def right_shift(x: Operand, y: Operand) -> Array:
    if is_inexact(result_dtype(x, y)):
        return compute(lambda x, y: x / exp2(y), x, y)
    x, y = jnp.broadcast_arrays(*promote(x, y))
    if np.issubdtype(x.dtype, np.signedinteger):
        return lax.shift_right_arithmetic(x, y)
    return lax.shift_right_logical(x, y)


for _op, _alias, _function in (
    (aten.bitwise_and, aten.__and__, partial(compute, jnp.bitwise_and)),
    (aten.bitwise_or, aten.__or__, partial(compute, jnp.bitwise_or)),
    (aten.bitwise_xor, aten.__xor__, partial(compute, jnp.bitwise_xor)),
    (aten.bitwise_left_shift, aten.__lshift__, left_shift),
    (aten.bitwise_right_shift, aten.__rshift__, right_shift),
):
    _of_number = getattr(_op, "Scalar" if hasattr(_op, "Scalar") else "Tensor_Scalar")
    lower(_op.Tensor, _of_number, _op.Scalar_Tensor)(_function)
    lower(_alias.Tensor, _alias.Scalar)(_function)


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
