"""State that a step makes of zeros for its parameters is an argument of the step's program.

The first step of Adam makes its moments and updates them at once. With the zeros as arguments its
program is that of all later steps, which find the moments there: one compile, not two.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.executable import updates
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering import dtypes

from .program import Zeros

_ZEROS = torch.ops.aten.zeros_like.default
_Place = tuple[int, int]  # the number of a node, and of its operand


def lift(graph: Graph, donated: Collection[int]) -> tuple[Zeros, ...]:
    """Make arguments of the zeros that a step makes for what it updates; which those are.

    donated: the positions of the arguments that are not used after the step.
    """
    given = fx.placeholders(graph)
    results = fx.results(graph)
    updated = {updates.origin_of(result, _ZEROS) for result in results}
    parameters = updated.intersection(given[i] for i in donated)
    zeros = [node for node in updated if node.target is _ZEROS and node.args[0] in parameters]
    if not zeros or not set(zeros).isdisjoint(results):
        return ()
    first = _first_uses(graph)
    inputs = [node for node in given if str(node.target).startswith("arg")]
    end = inputs[-1].next  # numbers, seeds, or the first op
    lifted: dict[Node, Any] = {}
    for node in sorted(zeros, key=first.__getitem__):
        later = (i for i in inputs if i in first and first[i] > first[node])
        with graph.inserting_before(next(later, end)):
            argument = graph.placeholder(f"fresh{len(lifted)}")
        argument.meta["val"] = lifted[argument] = node.meta["val"]
        node.replace_all_uses_with(argument)
        graph.erase_node(node)
    return tuple(
        (position, tuple(lifted[node].shape), dtypes.to_numpy(lifted[node].dtype))
        for position, node in enumerate(fx.placeholders(graph))
        if node in lifted
    )


def _first_uses(graph: Graph) -> dict[Node, _Place]:
    """Where each node is used first: the order in which a trace numbers its inputs."""
    found: dict[Node, _Place] = {}
    for number, node in enumerate(graph.nodes):
        if node.target is not _ZEROS:
            for place, operand in enumerate(node.all_input_nodes):
                found.setdefault(operand, (number, place))
    return found
