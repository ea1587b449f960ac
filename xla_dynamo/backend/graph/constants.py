"""Constants of a graph, as XLA's algebraic simplifier sees them through views, copies and signs."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from .fx import bases

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


def base(node: Node) -> Node:
    """The tensor that `node` is a view or a copy of, up to its sign."""
    *_, last = bases(node, _NEG_AND_CLONE)
    return last


def constant(operand: Any) -> Any:
    """The number that `operand` is, or that every element of it is known to be, or None."""
    if not isinstance(operand, Node):
        return operand
    *views, source = bases(operand, _NEG_AND_CLONE)
    value: Any = _VALUES.get(source.target)
    if source.target in _POSITIONS:
        value = source.args[_POSITIONS[source.target]]
    if value is None or isinstance(value, Node):
        return None
    is_negated = sum(view.target is aten.neg.default for view in views) % 2
    return -(value or 0.0) if is_negated else value  # -0.0, not 0
