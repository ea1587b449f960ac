"""Ops on lists of tensors -> the same op on each of their elements.

Optimizers use them to issue a dozen ops a step, not a dozen for each parameter. In a graph the
elements are ops of their own again: XLA fuses what belongs together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

# Lists of tensors: op -> the op that each element of the lists goes through.
FOREACH: dict[Any, Any] = {
    aten._foreach_add.Scalar: aten.add.Scalar,
    aten._foreach_add.List: aten.add.Tensor,
    aten._foreach_add.ScalarList: aten.add.Scalar,
    aten._foreach_add.Tensor: aten.add.Tensor,
    aten._foreach_sub.Scalar: aten.sub.Scalar,
    aten._foreach_sub.List: aten.sub.Tensor,
    aten._foreach_sub.ScalarList: aten.sub.Scalar,
    aten._foreach_mul.Scalar: aten.mul.Scalar,
    aten._foreach_mul.List: aten.mul.Tensor,
    aten._foreach_mul.ScalarList: aten.mul.Scalar,
    aten._foreach_mul.Tensor: aten.mul.Tensor,
    aten._foreach_div.Scalar: aten.div.Scalar,
    aten._foreach_div.List: aten.div.Tensor,
    aten._foreach_div.ScalarList: aten.div.Scalar,
    aten._foreach_div.Tensor: aten.div.Tensor,
    aten._foreach_addcmul.Scalar: aten.addcmul.default,
    aten._foreach_addcmul.ScalarList: aten.addcmul.default,
    aten._foreach_addcdiv.Scalar: aten.addcdiv.default,
    aten._foreach_addcdiv.ScalarList: aten.addcdiv.default,
    aten._foreach_lerp.Scalar: aten.lerp.Scalar,
    aten._foreach_lerp.List: aten.lerp.Tensor,
    aten._foreach_maximum.List: aten.maximum.default,
    aten._foreach_minimum.List: aten.minimum.default,
    aten._foreach_maximum.Scalar: aten.clamp_min.default,
    aten._foreach_minimum.Scalar: aten.clamp_max.default,
    aten._foreach_clamp_min.Scalar: aten.clamp_min.default,
    aten._foreach_clamp_max.Scalar: aten.clamp_max.default,
    aten._foreach_clamp_min.List: aten.maximum.default,
    aten._foreach_clamp_max.List: aten.minimum.default,
    aten._foreach_pow.Scalar: aten.pow.Tensor_Scalar,
    aten._foreach_pow.List: aten.pow.Tensor_Tensor,
    aten._foreach_pow.ScalarAndTensor: aten.pow.Scalar,
    aten._foreach_norm.Scalar: aten.linalg_vector_norm.default,
    aten._foreach_sqrt.default: aten.sqrt.default,
    aten._foreach_rsqrt.default: aten.rsqrt.default,
    aten._foreach_neg.default: aten.neg.default,
    aten._foreach_abs.default: aten.abs.default,
    aten._foreach_sign.default: aten.sign.default,
    aten._foreach_exp.default: aten.exp.default,
    aten._foreach_log.default: aten.log.default,
    aten._foreach_reciprocal.default: aten.reciprocal.default,
    aten._foreach_zero.default: aten.zeros_like.default,
    aten._foreach_copy.default: aten.copy.default,
}

# Their last argument has a name only.
BY_NAME = frozenset({aten.addcmul.default, aten.addcdiv.default})


def element(argument: Any, index: int, length: int) -> Any:
    """What element `index` of the lists gets of an argument: its own, or the one there is."""
    return (
        argument[index]
        if isinstance(argument, (list, tuple)) and len(argument) == length
        else argument
    )


def named(each: Any, args: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of the op on one element: a fourth one may have a name only."""
    if each in BY_NAME and len(args) == 4:
        return args[:3], {"value": args[3]}
    return args, {}


def _of_each(each: Any) -> Callable[..., list[Any]]:
    def run(*args: Any, **kwargs: Any) -> list[Any]:
        length = next(len(argument) for argument in args if isinstance(argument, (list, tuple)))
        results = []
        for index in range(length):
            own, value = named(each, [element(argument, index, length) for argument in args])
            results.append(each(*own, **value, **kwargs))
        return results

    return run


FOREACH_DECOMPOSITIONS: dict[Any, Callable[..., list[Any]]] = {
    op: _of_each(each) for op, each in FOREACH.items()
}
