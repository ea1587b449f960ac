"""The last part of a graph that is split at kernels: what no kernel waits for.

That is what comes after all kernels, and of what comes before what is as well computed later.
Parameters get their new values there: as long as a kernel may fail, nothing is overwritten.
"""

from __future__ import annotations

import operator
from collections.abc import Collection

from torch import Tensor
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx

from . import partition


def split_off(
    graph: Graph, kernels: Collection[Node]
) -> tuple[partition.Segment, partition.Segment]:
    """What has the kernels, and the last part."""
    last = _last(graph, partition.with_items(graph, kernels))
    calls = fx.calls(graph)
    before = partition.Segment(0, tuple(node for node in calls if node not in last))
    return before, partition.Segment(1, tuple(node for node in calls if node in last))


def _last(graph: Graph, kernels: set[Node]) -> set[Node]:
    level = partition.levels(graph, kernels)
    end = max(level[node] for node in kernels)
    needed = set(kernels)
    chosen: set[Node] = set()
    for node in reversed(fx.calls(graph)):
        if not needed.isdisjoint(node.users) or node in needed:
            needed.add(node)
        elif level[node] > end or (
            _keeps_no_more(node) and all(u in chosen or u.op == "output" for u in node.users)
        ):
            chosen.add(node)
    return chosen


def _keeps_no_more(node: Node) -> bool:
    """Whether nothing that a node is computed of is larger than its result."""
    value = node.meta["val"]
    if not isinstance(value, Tensor) or node.target is operator.getitem:
        return False
    computed = [n.meta["val"] for n in node.all_input_nodes if n.op == "call_function"]
    return all(isinstance(v, Tensor) and v.numel() <= value.numel() for v in computed)
