"""Graphs of calls as JSON: programs, PyTorch's kernels, and what is between, by their names.

`segments` makes such a graph where it splits one; from JSON it is made again, in a process that has
no graph to split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx, plain

# What a function is: its kind, and plain values of which it can be made again.
Name = tuple[Any, ...]


@dataclass(frozen=True)
class Turns:
    """What a graph became that was split: one that calls the parts in turn.

    names: of the functions that it calls.
    launches: what runs the programs, by their numbers in names.
    """

    graph: Graph
    names: Mapping[Any, Name]
    launches: Sequence[Callable[..., Any]]


def to_json(graph: Graph, names: Mapping[Any, Name]) -> list[Any]:
    """The calls of a graph, one after the other, and its results.

    Raises:
        plain.NotPlain: a function has no name, or is given what has no JSON.
    """
    number: dict[Node, int] = {node: i for i, node in enumerate(fx.placeholders(graph))}
    lines: list[Any] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        name = names.get(node.target) if node.op == "call_function" else (node.op, node.target)
        if name is None or name[0] == "get_attr":
            raise plain.NotPlain(f"{node.op} {node.target}")
        given = node.args, dict(node.kwargs)
        lines.append([plain.to_json(name), plain.to_json(given, number)])
        number[node] = len(number)
    return lines


def graph_of(lines: list[Any], function_of: Callable[[Name], Callable[..., Any]]) -> Graph:
    """The inverse of `to_json`, for a graph of one argument."""
    graph = Graph()
    values = [graph.placeholder("arguments")]
    for told, given in lines:
        name, (args, kwargs) = plain.of_json(told), plain.of_json(given, values)
        if name[0] == "output":
            graph.output(*args)
        elif name[0] == "call_method":
            values.append(graph.call_method(name[1], args))
        else:
            values.append(graph.call_function(function_of(name), args, kwargs))
    return graph
