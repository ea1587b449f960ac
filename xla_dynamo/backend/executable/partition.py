"""Split a graph at the nodes that XLA cannot take, into the fewest segments for XLA.

A node goes into the first segment that can hold it: segment k may use the results of the refused
nodes that run before it. Or into the last one that its users leave it, so that what is cheap to
compute of arguments is not in memory meanwhile.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node


@dataclass(frozen=True)
class Segment:
    """A part for XLA: `graph` takes `inputs` and returns `outputs`.

    index: its position among the segments.
    inputs, outputs, members: nodes of the graph that is split, in its order.
    """

    index: int
    members: tuple[Node, ...]

    @functools.cached_property
    def inputs(self) -> tuple[Node, ...]:
        inside = set(self.members)
        sources = (source for member in self.members for source in member.all_input_nodes)
        return tuple(dict.fromkeys(source for source in sources if source not in inside))

    @functools.cached_property
    def outputs(self) -> tuple[Node, ...]:
        inside = set(self.members)
        return tuple(m for m in self.members if not inside.issuperset(m.users))

    @functools.cached_property
    def graph(self) -> Graph:
        """Copies of the members. Made where it is asked for: some splits are only weighed."""
        new = Graph()
        copies: dict[Node, Node] = {}
        for source in self.inputs:
            copies[source] = new.placeholder(source.name)
            copies[source].meta = dict(source.meta)
        for member in self.members:
            copies[member] = new.node_copy(member, copies.__getitem__)
        new.output(tuple(copies[node] for node in self.outputs))
        return new


def split(graph: Graph, refused: Collection[Node], *, late: bool = False) -> list[Segment | Node]:
    """Split `graph` at `refused`, single steps; placeholders and get_attr nodes belong to none.

    late: into the last segments that can hold the nodes, not into the first.
    """
    refused = with_items(graph, refused)
    level = levels(graph, refused)
    if late:
        _delay(graph, refused, level)
    of_level: dict[int, tuple[list[Node], list[Node]]] = {}
    for node, at in level.items():
        of_level.setdefault(at, ([], []))[node in refused].append(node)
    steps: list[Segment | Node] = []
    segments = 0
    for _, (members, alone) in sorted(of_level.items()):
        if members:
            steps.append(Segment(segments, tuple(members)))
            segments += 1
        steps.extend(alone)
    return steps


def with_items(graph: Graph, refused: Collection[Node]) -> set[Node]:
    """`refused`, and the items of what they return."""
    found = set(refused)
    for node in graph.nodes:
        if node.target is operator.getitem and node.args[0] in found:
            found.add(node)
    return found


def call_of(node: Node) -> Any:
    """The call that a node is an item of, or else the node."""
    return node.args[0] if node.target is operator.getitem else node


def levels(graph: Graph, refused: Collection[Node]) -> dict[Node, int]:
    """For each call, the first segment that can hold it, or after which it can run."""
    level: dict[Node, int] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        own = 0
        is_item = node.target is operator.getitem
        for source in node.all_input_nodes:
            if source in level:
                # The result of a refused node is ready for its getitems, and for the next level.
                own = max(own, level[source] + (source in refused and not is_item))
        level[node] = own
    return level


def keeps_no_more(node: Node) -> bool:
    """Whether nothing that a node is computed of is larger than its result."""
    value = node.meta["val"]
    if not isinstance(value, Tensor) or node.target is operator.getitem:
        return False
    computed = [n.meta["val"] for n in node.all_input_nodes if n.op == "call_function"]
    return all(isinstance(v, Tensor) and v.numel() <= value.numel() for v in computed)


def _is_update(node: Node) -> bool:
    """Whether it is what is written to an argument when all else is done."""
    is_copy = node.target is torch.ops.aten.copy.default
    return is_copy and all(user.op == "output" for user in node.users)


def _delay(graph: Graph, refused: Collection[Node], level: dict[Node, int]) -> None:
    """Move what only later segments use to the first of those; tuples stay with their items.

    Updates of arguments are one segment, the last one: the others may be small without them.
    """
    end = max((level[node] for node in refused), default=-1) + 1
    updating: set[Node] = set()
    for node in reversed(graph.nodes):
        if node not in level or node in refused or not isinstance(node.meta.get("val"), Tensor):
            continue
        waits = bool(node.users) and updating.issuperset(node.users)
        if (waits or _is_update(node)) and keeps_no_more(node):
            updating.add(node)
            level[node] = end
            continue
        users = [None if user in updating else level.get(user) for user in node.users]
        if node.target is not operator.getitem and users and None not in users:
            level[node] = max(level[node], min(at for at in users if at is not None))
    of_level: dict[int, list[Node]] = {}
    for node, at in level.items():
        if node not in refused:
            of_level.setdefault(at, []).append(node)
    for at, following in itertools.pairwise(sorted(of_level)):
        # What is returned, and used by nothing else, needs no segment of its own.
        users = {user for node in of_level[at] for user in node.users if user in level}
        if users.issubset(of_level[at]):
            of_level[following] = of_level[at] + of_level[following]
            level.update(dict.fromkeys(of_level[at], following))
