"""Python numbers as inputs of the program: ops that take a number, as functions of 0-d tensors.

A learning rate, Adam's step size or a loss scale changes from step to step. Were it a constant of
the program, every step would compile. Here each such number is an input of its own (two numbers
that happen to be equal are two inputs).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xla_dynamo.backend.decompositions.foreach import FOREACH

aten = torch.ops.aten

Form = Callable[..., Any]


def _add(x: Any, y: Any, alpha: Any = 1) -> Any:
    if x.dtype is y.dtype is torch.bool and isinstance(alpha, torch.Tensor):
        return aten.logical_or.default(x, aten.logical_and.default(y, alpha))
    return aten.add.Tensor(x, _scaled(y, alpha))


def _sub(x: Any, y: Any, alpha: Any = 1) -> Any:
    if isinstance(alpha, int) and alpha == 1:
        return aten.sub.Tensor(x, y)
    # As eager negates an integer: -0 is 0, not -0.0, which decides the sign of a result of zero.
    # (Here integers arrive as floats too, and 0.0 is taken for 0.)
    return _add(x, y, 0 - alpha)


def _rsub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return _sub(y, x, alpha)


def _scaled(y: Any, alpha: Any) -> Any:
    return y if isinstance(alpha, int) and alpha == 1 else aten.mul.Tensor(y, alpha)


def _addcmul(x: Any, y: Any, z: Any, value: Any = 1) -> Any:
    return aten.add.Tensor(x, aten.mul.Tensor(_scaled(y, _as_integer(value, x, y, z)), z))


def _as_integer(number: Any, *tensors: Any) -> Any:
    """In an op on integers, the number is truncated to one."""
    if isinstance(number, int) or any(t.is_floating_point() or t.is_complex() for t in tensors):
        return number
    return aten._to_copy.default(number, dtype=torch.int64)


def _in_own_dtype(op: Any) -> Form:
    """`op` that takes an integer in the dtype of its integer tensor, where -2 may be 254.

    A 0-d tensor of another dtype would decide about the dtype of an op on a 0-d tensor.
    """

    def run(x: Any, y: Any, **kwargs: Any) -> Any:
        integers = not any(t.is_floating_point() or t.is_complex() for t in (x, y))
        if integers and x.dtype is not torch.bool:
            y = aten._to_copy.default(y, dtype=x.dtype)
        return op(x, y, **kwargs)

    return run


def _divided(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    op = aten.div.Tensor_mode
    return (op if rounding_mode is None else _in_own_dtype(op))(x, y, rounding_mode=rounding_mode)


def _addcdiv(x: Any, y: Any, z: Any, value: Any = 1) -> Any:
    return aten.add.Tensor(x, aten.div.Tensor(_scaled(y, value), z))


def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return aten.where.self(mask, aten._to_copy.default(value, dtype=x.dtype), x)


def _fill(x: Any, value: Any) -> Any:
    return aten.expand.default(value, x.shape)


def _full(size: Any, value: Any, **kwargs: Any) -> Any:
    return aten.expand.default(value, size)


# Ops as functions of 0-d tensors in the place of their numbers.
_FORMS: dict[Any, Form] = {
    aten.add.Tensor: _add,
    aten.add.Scalar: _add,
    aten.sub.Tensor: _sub,
    aten.sub.Scalar: _sub,
    aten.rsub.Tensor: _rsub,
    aten.rsub.Scalar: _rsub,
    aten.mul.Tensor: aten.mul.Tensor,
    aten.mul.Scalar: aten.mul.Tensor,
    aten.div.Tensor: aten.div.Tensor,
    aten.div.Scalar: aten.div.Tensor,
    aten.div.Tensor_mode: _divided,
    aten.div.Scalar_mode: _divided,
    **{
        op.Scalar: _in_own_dtype(op.Tensor)
        for op in (aten.remainder, aten.fmod, aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)
    },
    aten.addcmul.default: _addcmul,
    aten.addcdiv.default: _addcdiv,
    aten.lerp.Scalar: aten.lerp.Tensor,
    aten.masked_fill.Scalar: _masked_fill,
    aten.fill.Scalar: _fill,
    aten.full.default: _full,
}
# Ops that take a number in the place of their second tensor too.
_TENSOR_OR_NUMBER = frozenset(
    {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.div.Tensor_mode}
)


def _numbers(op: Any) -> tuple[int | str, ...]:
    """The positions of an op's arguments that are numbers or lists of them; names where it must."""
    found: list[int | str] = [1] if op in _TENSOR_OR_NUMBER else []
    for position, argument in enumerate(op._schema.arguments):
        kind: Any = argument.type
        element = kind.getElementType() if isinstance(kind, torch.ListType) else kind
        if isinstance(element, torch.NumberType):
            found.append(argument.name if argument.kwarg_only else position)
    return tuple(found)


# Where the numbers are that are inputs; in an op on lists, those of the op on their elements.
SCALARS: dict[Any, tuple[int | str, ...]] = {
    op: _numbers(op)
    for op in (*_FORMS, *FOREACH)
    if op in _FORMS or (FOREACH[op] in _FORMS and _numbers(op))
}

FILLS = frozenset({aten.fill.Scalar, aten.full.default})
# Ops whose results hold the number itself.
HOLDERS = FILLS | {aten.masked_fill.Scalar}
# Ops that take a number beside 16-bit floats as it is, in eager; others round it to 16 bits.
UNROUNDED = HOLDERS | {
    *(aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar),
    *(aten.div.Tensor_mode, aten.div.Scalar_mode, aten.addcmul.default, aten.addcdiv.default),
    aten.lerp.Scalar,
}
# Larger divisors are constants: passes.numerics has to know which have no reciprocal.
LARGE = 1 / torch.finfo(torch.float32).tiny


def form(op: Any) -> Form:
    """`op` as a function that takes 0-d tensors for its number arguments."""
    return _FORMS[op]
