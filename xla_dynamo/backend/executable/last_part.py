"""The last part of a graph that is split at kernels: what no kernel waits for.

That is what comes after all kernels, and of what comes before what is as well computed later.
Parameters get their new values there: as long as a kernel may fail, nothing is overwritten.
"""

from __future__ import annotations

from collections.abc import Collection

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
        elif level[node] > end or (_is_unused(node, chosen) and partition.keeps_no_more(node)):
            chosen.add(node)
    return chosen


def _is_unused(node: Node, chosen: set[Node]) -> bool:
    """Whether nothing but the last part uses it."""
    return all(user in chosen or user.op == "output" for user in node.users)
