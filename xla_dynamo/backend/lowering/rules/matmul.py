"""Matrix products: one dot_general each.

16-bit floats accumulate in float32 and are rounded once, after alpha and beta. An accumulator
scaled by beta=0 is not read: its NaNs do not reach the result.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.dtypes import accumulation, to_numpy
from xla_dynamo.backend.lowering.registry import PerPlatform, Unsupported, lower

from ._promotion import cast

aten = torch.ops.aten

Number = float | complex


def product(
    first: Array, second: Array, contract: tuple[int, int], batch: Sequence[int] = ()
) -> Array:
    """dot_general over one pair of axes, in the accumulation dtype; results are not rounded."""
    numbers = (((contract[0],), (contract[1],)), (tuple(batch), tuple(batch)))
    if first.dtype == np.bool_:
        return lax.dot_general(first.astype(np.int32), second.astype(np.int32), numbers) != 0
    dtype = accumulation(first.dtype)
    return dot_general(first, second, numbers, dtype)


@PerPlatform
def dot_general(first: Array, second: Array, numbers: Any, dtype: np.dtype) -> Array:
    return lax.dot_general(first, second, numbers, preferred_element_type=dtype)


lower(aten._int_mm.default)(functools.partial(jnp.matmul, preferred_element_type=np.int32))


@lower(aten._weight_int8pack_mm.default)
def weight_int8pack_mm(x: Array, weight: Array, scales: Array) -> Array:
    """A linear layer of int8 weights, which 16-bit floats hold, with a scale for each row."""
    wide = product(x, weight.astype(x.dtype), (1, 1))
    return wide * scales.astype(wide.dtype)


@lower(aten._scaled_mm.default)
def scaled_mm(
    x: Array,
    y: Array,
    scale_x: Array,
    scale_y: Array,
    bias: Array | None = None,
    scale_result: Array | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Array:
    """A product of float8 matrices, with one scale each or one per row of `x` and column of `y`."""
    for scale, shape in ((scale_x, (x.shape[0], 1)), (scale_y, (1, y.shape[1]))):
        if scale.dtype != np.float32 or (scale.size != 1 and scale.shape != shape):
            raise Unsupported(
                "Its scales are given by blocks.",
                "Pass one float32 scale for a matrix, or one for each row of x and column of y.",
            )
    wide = product(x.astype(np.float32), y.astype(np.float32), (1, 0))
    scales = [scale.reshape(()) if scale.size == 1 else scale for scale in (scale_x, scale_y)]
    wide = wide * scales[0] * scales[1]
    if bias is not None:
        wide = wide + bias.astype(np.float32)
    if scale_result is not None and jnp.finfo(to_numpy(out_dtype or torch.float8_e4m3fn)).bits == 8:
        wide = wide * scale_result.reshape(())
    return wide


@lower(aten.vdot.default)
def vdot(x: Array, y: Array) -> Array:
    return product(jnp.conj(x), y, (0, 0)).astype(x.dtype)


@lower(aten.mm.default, aten.mv.default, aten.bmm.default, aten.dot.default, aten.matmul.default)
@PerPlatform
def matmul(x: Array, y: Array) -> Array:
    return jnp.matmul(x, y, preferred_element_type=accumulation(x.dtype)).astype(x.dtype)


@lower(torch.ops.xla_dynamo.rows_product.default)
def rows_product(x: Array, y: Array) -> Array:
    lead = tuple(range(x.ndim - 1))
    return dot_general(x, y, ((lead, lead), ((), ())), accumulation(x.dtype)).astype(x.dtype)


@lower(aten.linear.default)
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    total = product(x, weight, (x.ndim - 1, 1))
    return total.astype(x.dtype) if bias is None else _accumulate(bias, total, 1, 1)


@lower(aten.addmm.default, aten.addmv.default)
def addmm(bias: Array, x: Array, y: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    return _accumulate(bias, product(x, y, (1, 0)), beta, alpha)


@lower(aten.baddbmm.default)
def baddbmm(bias: Array, x: Array, y: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    return _accumulate(bias, product(x, y, (2, 1), (0,)), beta, alpha)


@lower(aten.addbmm.default)
def addbmm(bias: Array, x: Array, y: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    numbers = (((0, 2), (0, 1)), ((), ()))
    total = dot_general(x, y, numbers, accumulation(x.dtype))
    return _accumulate(bias, total, beta, alpha)


@lower(aten.addr.default)
def addr(bias: Array, x: Array, y: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    dtype = functools.reduce(jnp.promote_types, (bias.dtype, x.dtype, y.dtype))
    outer = cast(x, accumulation(dtype))[:, None] * cast(y, accumulation(dtype))[None, :]
    return _accumulate(cast(bias, dtype), outer, beta, alpha)


@lower(aten._trilinear.default)
def trilinear(
    x: Array,
    y: Array,
    z: Array,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Array:
    """The sum over `sumdim` of a product of three tensors, each missing its expanded dims."""
    axes = range(x.ndim + len(expand1))
    letters = [
        "".join(chr(ord("a") + axis) for axis in axes if axis not in expanded)
        for expanded in (expand1, expand2, expand3)
    ]
    kept = [chr(ord("a") + axis) for axis in axes if axis not in sumdim]
    found = set("".join(letters))
    present = "".join(letter for letter in kept if letter in found)
    total = jnp.einsum(f"{','.join(letters)}->{present}", x, y, z)
    for axis, letter in enumerate(kept):
        if letter not in found:  # in eager, a dim that all miss is empty
            total = jnp.expand_dims(total, axis)[(slice(None),) * axis + (slice(0),)]
    return total


def _accumulate(bias: Array, value: Array, beta: Number, alpha: Number) -> Array:
    """beta * bias + alpha * value in the dtype of `value`, rounded to that of `bias`."""
    result = bias.dtype
    if value.dtype == np.bool_:
        return (value & bool(alpha)) | (bias & bool(beta))
    dtype = jnp.promote_types(value.dtype, result)
    value = value.astype(dtype)
    if alpha != 1:
        value = value * cast(alpha, dtype)
    if beta != 0:
        bias = bias.astype(dtype)
        value = value + (bias if beta == 1 else bias * cast(beta, dtype))
    return jnp.broadcast_to(value, jnp.broadcast_shapes(value.shape, bias.shape)).astype(result)
