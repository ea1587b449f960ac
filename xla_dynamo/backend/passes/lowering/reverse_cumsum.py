"""Join flip(cumsum(flip(x))), as PyTorch writes the gradient of a cumulative sum, to one op.

XLA sums from either end in the same time, and two reversals take longer than the sum.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph.edit import insert, substitute
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten


def join_reverse_cumsum(graph: Graph, context: Context) -> bool:
    """Rewrite `graph` in place."""
    changed = False
    for node in graph.find_nodes(op="call_function", target=aten.flip.default):
        total: Any = node.args[0]
        if not _is_plain_sum(total) or len(total.users) > 1:
            continue
        inner: Any = total.args[0]
        if inner.target is not aten.flip.default or _axes(inner) != _axes(node):
            continue
        if _axes(node) != {total.args[1] % total.meta["val"].dim()}:
            continue
        op, args = torch.ops.xla_dynamo.reverse_cumsum.default, (inner.args[0], total.args[1])
        with graph.inserting_before(node):
            substitute(node, insert(graph, op, args, {}, like=node, value=node.meta["val"]))
        changed = True
    return changed


def _is_plain_sum(node: Node) -> bool:
    """Whether `node` is a cumsum in the default dtype, of a tensor that has dimensions."""
    plain = node.target is aten.cumsum.default and not node.kwargs
    return plain and node.meta["val"].dim() > 0


def _axes(flip: Node) -> set[int]:
    axes: Any = flip.args[1]
    return {axis % flip.meta["val"].dim() for axis in axes}
