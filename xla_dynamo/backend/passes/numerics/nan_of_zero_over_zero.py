"""Select nan explicitly where both operands of a division may be zero.

LLVM (as of jaxlib 0.10.2) folds 0 / x to 0 where it can prove that the numerator is 0 and that x,
computed from integers, is not nan: 0 / x * y is then 0 where eager gives nan. The mean of an empty
tensor and the gradient of a minimum that no element equals (the minimum is nan) are such divisions.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from xla_dynamo.backend.graph.constants import constant
from xla_dynamo.backend.graph.edit import call
from xla_dynamo.backend.graph.fx import is_inexact
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten

# A division: the positions of its numerator and its divisor.
_POSITIONS: dict[Any, tuple[int, int]] = {
    aten.div.Tensor: (0, 1),
    aten.div.Tensor_mode: (0, 1),
    aten.true_divide.Tensor: (0, 1),
    aten.floor_divide.default: (0, 1),
    aten.addcdiv.default: (1, 2),
}


def keep_nan_of_zero_over_zero(graph: Graph, context: Context) -> bool:
    """Select nan for 0 / 0 in `graph`, in place, where both are made of integers and constants.

    Of quotients of other floats, a compiler knows nothing.
    """
    known: set[Node] = set()
    changed = False
    for node in list(graph.nodes):
        if node.op == "output":
            break
        if _is_known(node, known):
            known.add(node)
        positions = _POSITIONS.get(node.target)
        if positions is not None and is_inexact(node.meta["val"]):
            numerator, divisor = (node.args[position] for position in positions)
            if divisor in known and (numerator in known or numerator == 0):
                _select_nan(graph, node, numerator, divisor)
                changed = True
    return changed


def _is_known(node: Node, known: set[Node]) -> bool:
    """Whether `node` holds integers, or is computed from constants and `known` nodes alone."""
    value = node.meta.get("val")
    if isinstance(value, Tensor) and (not is_inexact(value) or value.numel() == 0):
        return True
    if node.op == "placeholder":
        return False
    return known.issuperset(node.all_input_nodes) or constant(node) is not None


def _select_nan(graph: Graph, node: Node, numerator: Any, divisor: Any) -> None:
    """Use nan in place of `node` where its numerator and its divisor are 0."""
    users = list(node.users)
    new = partial(call, graph, like=node)
    with graph.inserting_before(node.next):
        mask = new(aten.eq.Scalar, divisor, 0)
        if isinstance(numerator, Node):
            mask = new(aten.logical_and.default, new(aten.eq.Scalar, numerator, 0), mask)
        selected = new(aten.masked_fill.Scalar, node, mask, math.nan)
    for user in users:
        user.replace_input_with(node, selected)
