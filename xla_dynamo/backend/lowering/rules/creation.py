"""Tensors made of numbers: constants, ranges, indices of triangles, as XLA iotas and broadcasts.

What eager leaves uninitialised is zero here. Layout, device and pin_memory arguments mean nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.graph.memory_layout import fills_memory
from xla_dynamo.backend.lowering.dtypes import to_numpy
from xla_dynamo.backend.lowering.registry import Unsupported, lower

from ._numerics import plus_zero
from ._promotion import cast, is_inexact, result_dtype

aten = torch.ops.aten

Dtype = torch.dtype | None
_ENDS = ("default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")


def _dtype(dtype: Dtype, default: np.dtype | None = None) -> np.dtype:
    if dtype is None and default is not None:
        return default
    return to_numpy(dtype or torch.get_default_dtype())


def _filled(size: Sequence[int], value: Any, dtype: np.dtype) -> Array:
    return jnp.broadcast_to(cast(value, dtype), tuple(size))


@lower(aten.full.default)
def full(size: Sequence[int], value: Any, *, dtype: Dtype = None, **_: Any) -> Array:
    return _filled(size, value, _dtype(dtype, result_dtype(value)))


@lower(aten.empty_strided.default)
def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Dtype = None, **_: Any
) -> Array:
    _check_dense(size, stride)
    return _filled(size, 0, _dtype(dtype))


@lower(aten.new_empty_strided.default)
def new_empty_strided(
    x: Array, size: Sequence[int], stride: Sequence[int], *, dtype: Dtype = None, **_: Any
) -> Array:
    _check_dense(size, stride)
    return new_full(x, size, 0, dtype=dtype)


def _check_dense(size: Sequence[int], stride: Sequence[int]) -> None:
    """Raise for a layout with gaps or overlaps, in any order of dimensions: no array has it."""
    if not fills_memory(size, stride):
        raise Unsupported(
            f"XLA's arrays are dense, and the strides {tuple(stride)} leave gaps or overlap.",
            "Make a contiguous tensor instead.",
        )


def filled(value: int, size: Sequence[int], *_layout: Any, dtype: Dtype = None, **_: Any) -> Array:
    return _filled(size, value, _dtype(dtype))


@lower(aten.new_full.default)
def new_full(x: Array, size: Sequence[int], value: Any, *, dtype: Dtype = None, **_: Any) -> Array:
    return _filled(size, value, _dtype(dtype, x.dtype))


@lower(aten.full_like.default, aten.fill.Scalar, aten.fill.Tensor)
def full_like(x: Array, value: Any, *, dtype: Dtype = None, **_: Any) -> Array:
    return new_full(x, x.shape, value, dtype=dtype)


lower(aten.ones.default)(partial(filled, 1))
lower(aten.new_ones.default)(partial(new_full, value=1))
lower(aten.ones_like.default)(partial(full_like, value=1))
zeros = lower(aten.zeros.default, aten.empty.memory_format, aten.empty_permuted.default)(
    partial(filled, 0)
)
# A gradient that is zero everywhere, such as that of sgn.
lower(aten._efficientzerotensor.default)(zeros)
lower(aten.new_zeros.default, aten.new_empty.default)(partial(new_full, value=0))
lower(aten.zeros_like.default, aten.empty_like.default, aten.zero.default)(
    partial(full_like, value=0)
)


@lower(aten.scalar_tensor.default)
def scalar_tensor(value: Any, *, dtype: Dtype = None, **_: Any) -> Array:
    return cast(value, _dtype(dtype))


@lower(aten.arange.default)
def arange(end: float, *, dtype: Dtype = None, **_: Any) -> Array:
    return arange_from(0, end, dtype=dtype)


@lower(aten.arange.start, aten.arange.start_step)
def arange_from(
    start: float, end: float, step: float = 1, *, dtype: Dtype = None, **_: Any
) -> Array:
    if dtype == torch.int64:
        start, end, step = int(start), int(end), int(step)
    if all(isinstance(number, int) for number in (start, end, step)):
        size, result = int(-((start - end) // step)), _dtype(dtype, np.dtype(np.int64))
    else:
        size, result = math.ceil((end - start) / step), _dtype(dtype)
    if not is_inexact(result):
        start, step = int(start), int(step)
    whole = all(float(number).is_integer() for number in (start, step))
    # Whole ranges are exact in integers; others are computed as eager does, in float64.
    places = lax.iota(np.int64 if whole else np.float64, max(size, 0))
    convert = int if whole else float
    values = places * convert(step) + convert(start)
    return (values if whole or start else plus_zero(values)).astype(result)


@lower(*(getattr(aten.linspace, ends) for ends in _ENDS))
def linspace(start: Any, end: Any, steps: int, *, dtype: Dtype = None, **_: Any) -> Array:
    result = _dtype(dtype)
    return _between(start, end, steps, result).astype(result)


@lower(*(getattr(aten.logspace, ends) for ends in _ENDS))
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Dtype = None, **_: Any
) -> Array:
    result = _dtype(dtype)
    exponents = _between(start, end, steps, result)
    return jnp.power(cast(base, exponents.dtype), exponents).astype(result)


def _between(start: Any, end: Any, steps: int, result: np.dtype) -> Array:
    """Evenly spaced float64 numbers, counted from the nearer end so that both are exact."""
    if not is_inexact(result):
        start, end = cast(start, result), cast(end, result)
    is_complex = np.issubdtype(result, np.complexfloating)
    dtype = np.dtype(np.complex128 if is_complex else np.float64)
    start, end = cast(start, dtype), cast(end, dtype)
    if steps == 1:
        return start.reshape(1)
    place = lax.iota(np.int64, steps)
    step = (end - start) / (steps - 1)
    values = jnp.where(place < steps // 2, start + step * place, end - step * (steps - 1 - place))
    return plus_zero(values)  # the ends are sums with a step's 0, which may be -0.0


@lower(aten.eye.default, aten.eye.m)
def eye(rows: int, columns: int | None = None, *, dtype: Dtype = None, **_: Any) -> Array:
    return jnp.eye(rows, columns, dtype=_dtype(dtype))


@lower(aten.tril_indices.default)
def tril_indices(rows: int, columns: int, offset: int = 0, **_: Any) -> Array:
    counts = np.clip(np.arange(rows) + offset + 1, 0, columns)
    return _ragged_indices(np.zeros(rows, np.int64), counts)


@lower(aten.triu_indices.default)
def triu_indices(rows: int, columns: int, offset: int = 0, **_: Any) -> Array:
    first = np.clip(np.arange(rows) + offset, 0, columns)
    return _ragged_indices(first, columns - first)


def _ragged_indices(first: np.ndarray, counts: np.ndarray) -> Array:
    """Row and column of each element of rows that start at `first` and are `counts` long."""
    total = int(counts.sum())
    if total == 0:
        return jnp.zeros((2, 0), np.int64)
    ends = np.cumsum(counts)
    place = lax.iota(np.int64, total)
    row = jnp.searchsorted(jnp.asarray(ends), place, side="right")
    shift = jnp.asarray(first - (ends - counts))
    return jnp.stack([row, place + shift[row]])
