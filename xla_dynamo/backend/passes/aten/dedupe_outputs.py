"""A graph that returns a tensor twice -> one that returns it once, and what gives it out twice.

One node is one tensor to autograd and to the user: it has one gradient, and `a is b`. What was
detached from it is another node and another tensor, though later it is the same array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Graph, Node

from xla_dynamo.backend.executable.segments import Run
from xla_dynamo.backend.graph import fx


def keep_once(graph: Graph) -> list[int]:
    """Have `graph` return each tensor once; for each of its results, which of those it is."""
    results = fx.results(graph)
    keys = [result if isinstance(result, Node) else i for i, result in enumerate(results)]
    kept = list(dict.fromkeys(keys))
    graph.output_node().args = (tuple(results[k] if isinstance(k, int) else k for k in kept),)
    place = {key: i for i, key in enumerate(kept)}
    return [place[key] for key in keys]


def repeated(run: Run, places: Sequence[int]) -> Run:
    """`run`, with its results at all the `places` where the graph had them."""

    def repeated(args: list[Any]) -> Sequence[Any]:
        results = run(args)
        return [results[place] for place in places]

    return repeated
