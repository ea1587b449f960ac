"""Put what an optimizer's step does in the place of the op that stands for all of it.

One parameter of each kind is traced: equal ones, in shape, dtype and hyperparameters, get copies.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit
from xla_dynamo.backend.ops import optimizer_updates
from xla_dynamo.backend.passes.contract import Context
from xla_dynamo.backend.passes.static.decompose_unsupported import replace

aten = torch.ops.aten


def expand_updates(graph: Graph, context: Context) -> bool:
    """Replace each `optimizer_updates` by the ops of its updates."""
    target = torch.ops.xla_dynamo.optimizer_updates.default
    found = graph.find_nodes(op="call_function", target=target)
    for node in found:
        _expand(graph, node)
    return bool(found)


def _expand(graph: Graph, node: Node) -> None:
    arguments: Any = node.args
    parameters, gradients, state, rates, name = arguments
    values = node.meta["val"]
    results = {user.args[1]: user for user in node.users}
    for update in optimizer_updates.known[name].each:
        given = tuple(update.operands(parameters, gradients, state, rates))
        positions = [update.parameter, *(len(parameters) + i for i in update.state)]
        with graph.inserting_before(node):
            value = [values[i] for i in positions]
            one = edit.insert(graph, update.function, given, {}, like=node, value=value)
        for place, position in enumerate(positions):
            if position in results:
                results[position].args = (one, place)
        before = one.prev
        replaced = replace(graph, one, update.function)
        assert replaced, "the trace of an update holds constants"
        _drop_clones(before, node)
    graph.erase_node(node)


def _drop_clones(after: Node, before: Node) -> None:
    """Drop what stood for memory that the optimizer's code wrote to; results keep theirs."""
    node = after.next
    while node is not before:
        following = node.next
        if node.target is aten.clone.default and _is_dropped(node):
            edit.substitute(node, node.args[0])  # type: ignore[arg-type]
        node = following


def _is_dropped(clone: Node) -> bool:
    (of,) = clone.all_input_nodes
    lies_alike = clone.meta["val"].stride() == of.meta["val"].stride()
    return lies_alike and all(user.op == "call_function" for user in clone.users)
