"""Decompose ops on lists of tensors to one op for each element.

Optimizers use list ops to issue a dozen ops a step, not a dozen for each parameter. In a graph,
separate ops cost nothing, and XLA fuses them as it sees fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

aten = torch.ops.aten

# An op on lists: the op on each of their elements.
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

# Ops whose last argument, `value`, can only be given by name.
_VALUE_BY_NAME = frozenset({aten.addcmul.default, aten.addcdiv.default})


def calls(op: Any, args: Sequence[Any], length: int) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """The arguments of `op`, and those with a name, for each element of lists of `length`.

    Arguments that are no lists are shared by all elements.
    """
    for i in range(length):
        own = [x[i] if isinstance(x, (list, tuple)) and len(x) == length else x for x in args]
        if op in _VALUE_BY_NAME and len(own) == 4:
            yield own[:3], {"value": own[3]}
        else:
            yield own, {}


def _decomposition(op: Any) -> Callable[..., list[Any]]:
    def run(*args: Any, **kwargs: Any) -> list[Any]:
        length = next(len(argument) for argument in args if isinstance(argument, (list, tuple)))
        return [op(*own, **value, **kwargs) for own, value in calls(op, args, length)]

    return run


FOREACH_DECOMPOSITIONS: dict[Any, Callable[..., list[Any]]] = {
    op: _decomposition(each) for op, each in FOREACH.items()
}
