"""Write transposes as permutations, and one of another as one: the partitioner saves neither.

What backward reads of forward is saved as a result of the forward program. PyTorch's partitioner
takes a permuted tensor for a view, which costs nothing to make again, and a transposed one for a
result of its own: the gradients of `x @ x.mT` had it save x twice.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import drop_unused
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten


def compose_permutations(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, in place."""
    results: set[Any] = set(fx.results(graph))
    changed = False
    for node in list(graph.nodes):
        order = fx.permutation(node)
        if order is None:
            continue
        source: Any = node.args[0]
        before = fx.permutation(source)
        if before is not None:
            source, order = source.args[0], [before[dim] for dim in order]
        elif node.target is not aten.transpose.int:
            continue
        is_result = node in results
        if order == sorted(order) and (not is_result or _is_free(source, results)):
            node.replace_all_uses_with(source)
            results |= {source} if is_result else set()
        else:
            node.target, node.args = aten.permute.default, (source, order)
        changed = True
    if changed:
        drop_unused(graph)
    return changed


def _is_free(node: Node, results: set[Any]) -> bool:
    """Whether `node` can be a result: it is no argument, and no result yet."""
    return node.op == "call_function" and node not in results
