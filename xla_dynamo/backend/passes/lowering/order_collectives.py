"""On CPUs, have the collectives of a program run in the order in which the user called them.

XLA is free to reorder what does not depend on each other, and schedules a program as a whole. The
programs of processes can differ outside of their collectives (rank 0 keeps its loss to print it),
and these must come in the same order in all. So each depends on the one before it. The first one
takes no constant that XLA can see: it would compute a collective of a constant by itself, as if the
other processes had that constant, too. Elsewhere the programs of all processes are the same (see
`runtime.job`), and XLA may order and combine; those of one partitioned program have its constants.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Container, Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.ops.collectives import COMMUNICATING
from xla_dynamo.backend.passes.contract import Context

_aten = torch.ops.aten
# Ops that take no values of their tensors.
_SHAPE_ONLY = frozenset(
    overload
    for op in (
        *(_aten.zeros_like, _aten.ones_like, _aten.full_like, _aten.empty_like),
        *(_aten.new_zeros, _aten.new_ones, _aten.new_full, _aten.new_empty),
    )
    for overload in (getattr(op, name) for name in op.overloads())
)


def order_collectives(graph: Graph, context: Context) -> bool:
    """Name, in each collective of `graph`, a result of the one before it.

    All-reduces are of one tensor each: see `separate_all_reduces`.
    """
    if context.target.platform != "cpu":
        return False
    found = [node for node in fx.calls(graph) if node.target in COMMUNICATING]
    changed = bool(found) and not context.partitioned and _hide_constant(found[0])
    without: Container[Any] = () if context.partitioned else _SHAPE_ONLY
    for earlier, later in itertools.pairwise(found):
        if not _depends(later, earlier, without):
            later.kwargs = {**later.kwargs, "after": _result(earlier)}
            changed = True
    return changed


def _hide_constant(first: Node) -> bool:
    """If the first collective takes a constant, have it come "after" that, which XLA then keeps."""
    operand = first.all_input_nodes[0]
    if any(node.op == "placeholder" for node in _sources(operand, _SHAPE_ONLY)):
        return False
    first.kwargs = {**first.kwargs, "after": operand}
    return True


def _depends(node: Node, on: Node, without: Container[Any]) -> bool:
    """Whether `node` needs a result of `on`, not only by operands of ops `without`."""
    return node is not on and any(each is on for each in _sources(node, without))


def _sources(node: Node, without: Container[Any]) -> Iterator[Node]:
    """`node`, and all that it is computed from, but not the operands of the ops `without`."""
    seen, waiting = {node}, [node]
    while waiting:
        yield (each := waiting.pop())
        found = [] if each.target in without else each.all_input_nodes
        waiting += [operand for operand in found if operand not in seen]
        seen.update(found)


def _result(node: Node) -> Node:
    """The tensor that a collective gives."""
    value = node.meta["val"]
    if not isinstance(value, (list, tuple)):
        return node
    if node.users:
        return next(iter(node.users))
    with node.graph.inserting_after(node):
        return edit.insert(node.graph, operator.getitem, (node, 0), {}, like=node, value=value[0])
