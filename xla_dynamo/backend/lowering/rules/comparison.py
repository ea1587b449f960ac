"""Comparisons, tests for non-finite values, and selection by a condition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from xla_dynamo.backend.lowering.registry import Unsupported, lower

from ._promotion import cast, compute, is_inexact, promote

aten = torch.ops.aten

Operand = Any

_COMPARISONS: dict[str, Callable[..., Array]] = {
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
}

_TESTS: dict[Any, Callable[[Array], Array]] = {
    aten.isnan.default: jnp.isnan,
    aten.isinf.default: jnp.isinf,
    aten.isfinite.default: jnp.isfinite,
    aten.isposinf.default: lambda x: x == jnp.inf,
    aten.isneginf.default: lambda x: x == -jnp.inf,
}


def _tested(test: Callable[[Array], Array], x: Array) -> Array:
    return test(x) if is_inexact(x.dtype) else jnp.full(x.shape, test is jnp.isfinite)


for _name, _function in _COMPARISONS.items():
    _packet = getattr(aten, _name)
    lower(_packet.Tensor, _packet.Scalar)(partial(compute, _function, numbers_rounded=True))
for _op, _test in _TESTS.items():
    lower(_op)(partial(_tested, _test))


@lower(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def where(condition: Array, x: Operand, y: Operand) -> Array:
    return jnp.where(condition != 0, *promote(x, y))


@lower(aten.where.default, aten.equal.default, aten.allclose.default)
def depends_on_data(*args: object, **kwargs: object) -> Array:
    raise Unsupported(
        "Its result is a Python number, or has a shape, that depends on data.",
        "Use a form that returns a tensor of a known shape, such as (x == y).all().",
    )


@lower(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(x: Array, mask: Array, value: Operand) -> Array:
    return jnp.where(mask, cast(value, x.dtype), x)


@lower(aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar, aten.isin.Scalar_Tensor)
def isin(
    elements: Operand, tests: Operand, *, assume_unique: bool = False, invert: bool = False
) -> Array:
    elements, tests = promote(elements, tests)
    method = "compare_all" if tests.size <= _FEW else "binary_search"
    return jnp.isin(elements, tests, invert=invert, method=method)


# Up to this number of tests, comparing with all is cheaper than sorting and searching.
_FEW = 64


@lower(aten.isclose.default)
def isclose(
    x: Array, y: Array, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    x, y = promote(x, y)
    equal = x == y
    if equal_nan and is_inexact(x.dtype):
        equal |= jnp.isnan(x) & jnp.isnan(y)
    if not is_inexact(x.dtype):
        x, y = x.astype(np.float64), y.astype(np.float64)
    gap = jnp.abs(x - y)
    return equal | (jnp.isfinite(gap) & (gap <= atol + jnp.abs(rtol * y)))
