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


# op -> (positions and names of number arguments, the op as a function of 0-d tensors there).
_TABLE: dict[Any, tuple[tuple[int | str, ...], Form]] = {
    aten.add.Tensor: ((1, "alpha"), _add),
    aten.add.Scalar: ((1, 2), _add),
    aten.sub.Tensor: ((1, "alpha"), _sub),
    aten.sub.Scalar: ((1, 2), _sub),
    aten.rsub.Tensor: (("alpha",), _rsub),
    aten.rsub.Scalar: ((1, 2), _rsub),
    aten.mul.Tensor: ((1,), aten.mul.Tensor),
    aten.mul.Scalar: ((1,), aten.mul.Tensor),
    aten.div.Tensor: ((1,), aten.div.Tensor),
    aten.div.Scalar: ((1,), aten.div.Tensor),
    aten.div.Tensor_mode: ((1,), _divided),
    aten.div.Scalar_mode: ((1,), _divided),
    aten.remainder.Scalar: ((1,), _in_own_dtype(aten.remainder.Tensor)),
    aten.fmod.Scalar: ((1,), _in_own_dtype(aten.fmod.Tensor)),
    aten.eq.Scalar: ((1,), _in_own_dtype(aten.eq.Tensor)),
    aten.ne.Scalar: ((1,), _in_own_dtype(aten.ne.Tensor)),
    aten.lt.Scalar: ((1,), _in_own_dtype(aten.lt.Tensor)),
    aten.le.Scalar: ((1,), _in_own_dtype(aten.le.Tensor)),
    aten.gt.Scalar: ((1,), _in_own_dtype(aten.gt.Tensor)),
    aten.ge.Scalar: ((1,), _in_own_dtype(aten.ge.Tensor)),
    aten.addcmul.default: (("value",), _addcmul),
    aten.addcdiv.default: (("value",), _addcdiv),
    aten.lerp.Scalar: ((2,), aten.lerp.Tensor),
    aten.masked_fill.Scalar: ((2,), _masked_fill),
    aten.fill.Scalar: ((1,), _fill),
    aten.full.default: ((1,), _full),
}

# Where the number of a foreach op stands.
_FOREACH_POSITIONS: dict[Any, tuple[int | str, ...]] = {
    aten.add.Scalar: (1,),
    aten.add.Tensor: ("alpha",),
    aten.sub.Scalar: (1,),
    aten.sub.Tensor: ("alpha",),
    aten.mul.Scalar: (1,),
    aten.div.Scalar: (1,),
    aten.addcmul.default: (3,),
    aten.addcdiv.default: (3,),
    aten.lerp.Scalar: (2,),
}

SCALARS: dict[Any, tuple[int | str, ...]] = {
    **{op: positions for op, (positions, _) in _TABLE.items()},
    **{op: _FOREACH_POSITIONS[each] for op, each in FOREACH.items() if each in _FOREACH_POSITIONS},
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
    return _TABLE[op][1]
