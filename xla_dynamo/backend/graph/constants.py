"""Constants of a graph and chains of views, as XLA's algebraic simplifier sees through them."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import torch
from torch.fx import Node

from .fx import is_view

aten = torch.ops.aten

# Ops that fill a tensor with one value: the value, or the position of the argument that gives it.
_VALUES: dict[Any, int] = {
    **dict.fromkeys((aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default), 0),
    **dict.fromkeys((aten.ones.default, aten.ones_like.default, aten.new_ones.default), 1),
}
_POSITIONS: dict[Any, int] = {
    aten.full.default: 1,
    aten.full_like.default: 1,
    aten.new_full.default: 2,
    aten.scalar_tensor.default: 0,
}
# XLA moves constants past a change of sign, too.
_NEG_AND_CLONE = frozenset({aten.neg.default, aten.clone.default})


def bases(node: Node, through: Container[Any] = _NEG_AND_CLONE) -> Iterator[Node]:
    """`node`, the tensor that it is a view of, what that is a view of in turn, and so on.

    The ops in `through` count as views.
    """
    yield node
    while node.op == "call_function" and (node.target in through or is_view(node)):
        source = node.args[0] if node.args else None
        if not isinstance(source, Node):
            return
        yield (node := source)


def base(node: Node, through: Container[Any] = _NEG_AND_CLONE) -> Node:
    """The last of `bases`."""
    *_, last = bases(node, through)
    return last


def constant(operand: Any) -> Any:
    """The number that `operand` is, or that every element of it is known to be, or None."""
    if not isinstance(operand, Node):
        return operand
    *views, source = bases(operand)
    value = _VALUES.get(source.target)
    if source.target in _POSITIONS:
        value = source.args[_POSITIONS[source.target]]
    if value is None or isinstance(value, Node):
        return None
    is_negated = sum(view.target is aten.neg.default for view in views) % 2
    return -(value or 0.0) if is_negated else value  # -0.0, not 0
