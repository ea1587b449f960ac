"""PyTorch's type promotion for rules: tensors of mixed dtypes and Python numbers in, arrays out.

`result_dtype` is `torch.result_type` for any number of operands: tensors with dimensions outrank
0-d tensors, which outrank Python numbers, unless the lower rank is of a higher kind (bool, integer,
float, complex). `promote` converts operands to it; `compute` calls a function in the dtype in which
eager evaluates element-wise maths (float32 inside for the 16-bit floats) and rounds once, at the
end. Operands keep their shapes: functions broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from xla_dynamo.backend.lowering.dtypes import accumulation, is_supported, to_numpy, to_torch
from xla_dynamo.backend.lowering.registry import Unsupported

from ._numerics import ones_where, rounded_to

_NUMBER_DTYPES = {bool: torch.bool, int: torch.int64, complex: torch.complex64}


def result_dtype(*operands: Any) -> np.dtype:
    """The NumPy dtype of the result of an element-wise op on these arrays and Python numbers."""
    with_dimensions = zero_dimensional = number = None
    for operand in operands:
        if is_array(operand):
            dtype = to_torch(operand.dtype)
            if operand.ndim:
                with_dimensions = _join(with_dimensions, dtype)
            else:
                zero_dimensional = _join(zero_dimensional, dtype)
        elif operand is not None:
            dtype = _NUMBER_DTYPES.get(type(operand)) or torch.get_default_dtype()
            number = _join(number, dtype)
    result = _rank(with_dimensions, _rank(zero_dimensional, number))
    assert result is not None, "an element-wise op without operands"
    if not is_supported(result):
        raise Unsupported(
            f"XLA has no dtype {result}.", "Convert the operands to another dtype first."
        )
    return to_numpy(result)


def promote(*operands: Any) -> list[Array]:
    """The operands as arrays of their common dtype."""
    dtype = result_dtype(*operands)
    return [cast(operand, dtype) for operand in operands]


def floating(dtype: np.dtype) -> np.dtype:
    """`dtype` if it is inexact, else PyTorch's default dtype: what maths on integers gives."""
    return dtype if is_inexact(dtype) else to_numpy(torch.get_default_dtype())


def compute(
    function: Callable[..., Array],
    *operands: Any,
    to_float: bool = False,
    numbers_rounded: bool = False,
) -> Array:
    """`function` of the promoted operands, evaluated in eager's precision and rounded once.

    Most of eager's kernels round numbers beside 16-bit tensors too (`numbers_rounded`); those of
    mul and of quotients by numbers do not.
    """
    dtype = result_dtype(*operands)
    dtype = floating(dtype) if to_float else dtype
    if numbers_rounded and dtype != accumulation(dtype):
        operands = tuple(_rounded(operand, dtype) for operand in operands)
    result = function(*(cast(operand, accumulation(dtype)) for operand in operands))
    # Functions may leave the dtype on purpose: comparisons give bool.
    return result.astype(dtype) if result.dtype == accumulation(dtype) else result


def _rounded(operand: Any, dtype: np.dtype) -> Array:
    if not is_array(operand) or operand.dtype == dtype or not is_inexact(operand.dtype):
        return cast(operand, dtype)
    return rounded_to(cast(operand, accumulation(dtype)), dtype)


def cast(operand: Any, dtype: np.dtype) -> Array:
    """`operand` in `dtype`; integers wrap as PyTorch's do, and complex loses its phase."""
    if is_array(operand):
        if np.iscomplexobj(operand) and not np.issubdtype(dtype, np.complexfloating):
            operand = operand != 0 if dtype == np.bool_ else jnp.real(operand)
        if operand.dtype == np.bool_ and is_inexact(dtype):
            return ones_where(operand, dtype)
        if is_inexact(operand.dtype) and jnp.issubdtype(dtype, jnp.integer):
            return _truncated(operand, dtype)
        return operand.astype(dtype)
    with np.errstate(all="ignore"):
        return jnp.asarray(np.asarray(operand).astype(dtype))


def _truncated(x: Array, dtype: np.dtype) -> Array:
    """Floats as integers: the low bits of a wider signed integer, or of its least if out of range.

    XLA's conversion saturates. PyTorch goes through int64 to uint8, so that -1.0 is 255 on every
    platform, and gives what the platform gives for other dtypes (c10/util/TypeCast.h): this is
    x86, like NumPy.
    """
    if dtype == np.uint64:
        return jnp.where(x < 0, x.astype(np.int64).astype(dtype), x.astype(dtype))
    x = x if x.dtype == np.float64 else x.astype(np.float32)
    is_long = dtype in (np.int64, np.uint32) or (dtype == np.uint8 and x.dtype == np.float64)
    wide = np.iinfo(np.int64 if is_long else np.int32)
    is_inside = jnp.abs(x) < 2.0 ** (wide.bits - 1)
    return jnp.where(is_inside, x.astype(wide.dtype), wide.dtype.type(wide.min)).astype(dtype)


def is_array(operand: Any) -> bool:
    """Whether `operand` is a tensor of the graph, not a Python number or None."""
    return isinstance(operand, (Array, np.ndarray))


def is_inexact(dtype: np.dtype) -> bool:
    """Whether `dtype` is floating point (bfloat16 too) or complex."""
    return jnp.issubdtype(dtype, jnp.inexact)


def is_complex(dtype: np.dtype) -> bool:
    """Whether `dtype` is complex."""
    return np.issubdtype(dtype, np.complexfloating)


def weakest(dtype: np.dtype, *, largest: bool) -> float:
    """What every other number of the dtype wins against: as the largest, or as the smallest."""
    if is_inexact(dtype):
        return -np.inf if largest else np.inf
    return np.iinfo(dtype).min if largest else np.iinfo(dtype).max


def _join(first: torch.dtype | None, second: torch.dtype) -> torch.dtype:
    return second if first is None else torch.promote_types(first, second)


def _rank(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """ATen's combine_categories: `lower` counts only where it is of a higher kind."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return higher.to_complex() if lower.is_complex else higher
    if higher == torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher
