"""Results that are copied into arguments after the call take over the arguments' memory.

AOTAutograd makes a graph that changes an argument return its new value, and copies that into the
argument afterwards: a step of an optimizer would have parameters and state twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.fx import Graph

from xla_dynamo.backend.graph import fx

from .output_plan import Output


def aliases(
    graph: Graph, planned: Sequence[Output], updates: Mapping[int, int], used: Sequence[int]
) -> dict[int, int]:
    """By position of a program's argument: its result that may take over the memory.

    planned: the call's outputs. updates: by the position of an output, the argument of the call
    that it is copied into. used: the call's arguments that the program takes.
    """
    returned = {output.argument for output in planned}
    results, placeholders = fx.results(graph), fx.placeholders(graph)
    place = {argument: i for i, argument in enumerate(used)}
    found: dict[int, int] = {}
    for output, argument in updates.items():
        result = planned[output].array
        if result is None or argument in returned or result in found.values():
            continue
        if not is_whole(planned[output]) or argument not in place:
            continue
        new, old = results[result].meta["val"], placeholders[place[argument]].meta["val"]
        if new.shape == old.shape and new.dtype is old.dtype:
            found[place[argument]] = result
    return found


def is_whole(output: Output) -> bool:
    """Whether an output is its array as it stands."""
    return output.view is None and not output.view_ops
