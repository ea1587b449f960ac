"""An all-reduce of a list becomes one of each tensor, as JAX has them.

Each can begin when its own tensor is there, while others are still computed; where many small ones
are slower than a large one, XLA combines them. The last of a list comes first: lists of gradients
are in the order of parameters, of which backward makes the last one first.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit
from xla_dynamo.backend.passes.contract import Context


def separate_all_reduces(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, whose results are taken from lists by `getitem`, in place."""
    target = torch.ops.xla_dynamo.all_reduce.default
    found = graph.find_nodes(op="call_function", target=target)
    lists = [node for node in found if len(node.args[0]) > 1]
    for node in lists:
        _separate(graph, node)
    return bool(lists)


def _separate(graph: Graph, node: Node) -> None:
    inputs, *how = node.args
    assert isinstance(inputs, (list, tuple))
    values, results = node.meta["val"], {}
    with graph.inserting_before(node):
        for index in reversed(range(len(inputs))):
            args, value = ([inputs[index]], *how), values[index]
            one = edit.insert(graph, node.target, args, {}, like=node, value=[value])
            results[index] = edit.insert(
                graph, operator.getitem, (one, 0), {}, like=node, value=value
            )
    for user in list(node.users):
        edit.substitute(user, results[user.args[1]])
    graph.erase_node(node)
