"""FX graph + the nodes that XLA cannot take -> segments for XLA, and those nodes, in order.

The fewest segments possible: a node goes into the first segment that can hold it, where segment k
may use whatever the refused nodes before it gave.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass

from torch.fx import Graph, Node


@dataclass(frozen=True)
class Segment:
    """A connected-by-level piece for XLA: `graph` takes `inputs`, gives `outputs` (old nodes)."""

    graph: Graph
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


@dataclass(frozen=True)
class Eager:
    """One node to run as it is."""

    node: Node


def split(graph: Graph, refused: Collection[Node]) -> list[Segment | Eager]:
    """Split `graph` at `refused`; placeholders and get_attr nodes belong to no step."""
    refused = _with_getitems(graph, refused)
    level = _levels(graph, refused)
    steps: list[Segment | Eager] = []
    for current in sorted(set(level.values())):
        members = [n for n, at in level.items() if at == current and n not in refused]
        if members:
            steps.append(_extract(graph, members))
        steps.extend(Eager(n) for n, at in level.items() if at == current and n in refused)
    return steps


def _with_getitems(graph: Graph, refused: Collection[Node]) -> set[Node]:
    found = set(refused)
    for node in graph.nodes:
        if node.target is operator.getitem and node.args[0] in found:
            found.add(node)
    return found


def _levels(graph: Graph, refused: Collection[Node]) -> dict[Node, int]:
    level: dict[Node, int] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        own = 0
        is_item = node.target is operator.getitem
        for source in node.all_input_nodes:
            if source in level:
                # What a refused node gives is ready only for the next level, or for its getitem.
                own = max(own, level[source] + (source in refused and not is_item))
        level[node] = own
    return level


def _extract(graph: Graph, members: list[Node]) -> Segment:
    inside = set(members)
    new = Graph()
    copies: dict[Node, Node] = {}
    inputs: list[Node] = []
    for member in members:
        for source in member.all_input_nodes:
            if source not in inside and source not in copies:
                inputs.append(source)
                copies[source] = new.placeholder(source.name)
                copies[source].meta = dict(source.meta)
    for member in members:
        copies[member] = new.node_copy(member, copies.__getitem__)
    outputs = [m for m in members if any(user not in inside for user in m.users)]
    new.output(tuple(copies[m] for m in outputs))
    return Segment(new, tuple(inputs), tuple(outputs))
