"""On CPUs, have the collectives of a program run in the order in which the user called them.

XLA is free to reorder what does not depend on each other, and schedules a program as a whole. The
programs of processes can differ outside of their collectives (rank 0 keeps its loss to print it),
and these must come in the same order in all. So each depends on the one before it. The first one
takes no constant that XLA can see: it would compute a collective of a constant by itself, as if the
other processes had that constant, too. Elsewhere the programs of all processes are the same (see
`runtime.job`), and XLA may order and combine.
"""

from __future__ import annotations

import itertools
import operator

from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.ops.collectives import COMMUNICATING
from xla_dynamo.backend.passes.contract import Context


def order_collectives(graph: Graph, context: Context) -> bool:
    """Name, in each collective of `graph`, a result of the one before it.

    All-reduces are of one tensor each: see `separate_all_reduces`.
    """
    if context.target.platform != "cpu":
        return False
    found = [node for node in fx.calls(graph) if node.target in COMMUNICATING]
    changed = bool(found) and _hide_operand(found[0])
    for earlier, later in itertools.pairwise(found):
        if not _depends(later, earlier):
            later.kwargs = {**later.kwargs, "after": _result(earlier)}
            changed = True
    return changed


def _hide_operand(first: Node) -> bool:
    """Have the first collective come "after" what it takes, unless that is an argument as it is."""
    operand = first.all_input_nodes[0]
    *_, given = fx.bases(operand)
    if given.op == "placeholder":
        return False
    first.kwargs = {**first.kwargs, "after": operand}
    return True


def _depends(node: Node, on: Node) -> bool:
    """Whether `node` needs a result of `on`."""
    seen: set[Node] = set()
    waiting = [node]
    while waiting:
        for operand in waiting.pop().all_input_nodes:
            if operand is on:
                return True
            if operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    return False


def _result(node: Node) -> Node:
    """The tensor that a collective gives."""
    value = node.meta["val"]
    if not isinstance(value, (list, tuple)):
        return node
    if node.users:
        return next(iter(node.users))
    with node.graph.inserting_after(node):
        return edit.insert(node.graph, operator.getitem, (node, 0), {}, like=node, value=value[0])
