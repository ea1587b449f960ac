"""Decompose ops on lists of tensors to one op for each element.

Optimizers use list ops to issue a dozen ops a step, not a dozen for each parameter. In a graph,
separate ops cost nothing, and XLA fuses them as it sees fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import torch

aten = torch.ops.aten

# (overloads of aten._foreach_<name>, the op on each of their elements, names), `{}` for the name.
_TABLE = (
    ("default", "{}.default", "sqrt rsqrt neg abs sign exp log reciprocal copy"),
    ("default", "zeros_like.default", "zero"),
    ("Scalar ScalarList", "{}.Scalar", "add sub mul div"),
    ("List", "{}.Tensor", "add sub mul div lerp"),
    ("Tensor", "{}.Tensor", "add mul div"),
    ("Scalar ScalarList", "{}.default", "addcmul addcdiv"),
    ("Scalar", "{}.Scalar", "lerp"),
    ("List", "{}.default", "maximum minimum"),
    ("List", "maximum.default", "clamp_min"),
    ("List", "minimum.default", "clamp_max"),
    ("Scalar", "clamp_min.default", "maximum clamp_min"),
    ("Scalar", "clamp_max.default", "minimum clamp_max"),
    ("Scalar", "pow.Tensor_Scalar", "pow"),
    ("List", "pow.Tensor_Tensor", "pow"),
    ("ScalarAndTensor", "pow.Scalar", "pow"),
    ("Scalar", "linalg_vector_norm.default", "norm"),
)

# An op on lists: the op on each of their elements.
FOREACH: dict[Any, Any] = {
    attrgetter(f"_foreach_{name}.{overload}")(aten): attrgetter(each.format(name))(aten)
    for overloads, each, names in _TABLE
    for name in names.split()
    for overload in overloads.split()
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
