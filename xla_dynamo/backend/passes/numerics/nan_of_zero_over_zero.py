"""Quotients of which a compiler forgets that 0 / 0 is nan -> the same, with the nan written out.

LLVM (as of jaxlib 0.10.2) takes 0 / x for a zero where it sees that the numerator is 0 and that x,
made of integers, is never nan: 0 / x * y is then 0 where eager gives nan. A mean of nothing, or the
gradient of a minimum that nothing equals (a nan), is such a number.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from xla_dynamo.backend.graph.edit import call
from xla_dynamo.backend.graph.fx import is_inexact
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten

# Of a quotient -> where its numerator and its divisor stand.
_PLACES: dict[Any, tuple[int, int]] = {
    aten.div.Tensor: (0, 1),
    aten.div.Tensor_mode: (0, 1),
    aten.true_divide.Tensor: (0, 1),
    aten.floor_divide.default: (0, 1),
    aten.addcdiv.default: (1, 2),
}
# Constants in the shape of a tensor, of any numbers.
_FILLED = frozenset(
    {
        *(op.default for op in (aten.zeros_like, aten.ones_like, aten.full_like)),
        *(op.default for op in (aten.new_zeros, aten.new_ones, aten.new_full)),
    }
)


def keep_nan_of_zero_over_zero(graph: Graph, context: Context) -> bool:
    """Choose nan for 0 / 0 in `graph`, in place, where both are made of integers and constants.

    The quotients of other floats are nothing that a compiler could know.
    """
    known: set[Node] = set()
    changed = False
    for node in list(graph.nodes):
        if node.op == "output":
            break
        if _is_known(node, known):
            known.add(node)
        places = _PLACES.get(node.target)
        if places is not None and is_inexact(node.meta["val"]):
            numerator, divisor = (node.args[place] for place in places)
            if divisor in known and (numerator in known or _is_zero(numerator)):
                _choose(graph, node, numerator, divisor)
                changed = True
    return changed


def _is_known(node: Node, known: set[Node]) -> bool:
    """Whether `node` has integers, or is made of constants and of what is `known`."""
    value = node.meta.get("val")
    if isinstance(value, Tensor) and (not is_inexact(value) or value.numel() == 0):
        return True
    return node.op != "placeholder" and (
        node.target in _FILLED or known.issuperset(node.all_input_nodes)
    )


def _is_zero(number: Any) -> bool:
    return not isinstance(number, Node) and number == 0


def _choose(graph: Graph, node: Node, numerator: Any, divisor: Any) -> None:
    """Have nan used in the place of `node` where its numerator and its divisor are 0."""
    users = list(node.users)
    new = partial(call, graph, like=node)
    with graph.inserting_before(node.next):
        mask = new(aten.eq.Scalar, divisor, 0)
        if isinstance(numerator, Node):
            mask = new(aten.logical_and.default, new(aten.eq.Scalar, numerator, 0), mask)
        chosen = new(aten.masked_fill.Scalar, node, mask, math.nan)
    for user in users:
        user.replace_input_with(node, chosen)
