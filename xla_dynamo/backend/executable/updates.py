"""Which results take over the memory of arguments.

Those that are copied into arguments after the call: AOTAutograd makes a graph that changes an
argument return its new value, and copies that into the argument afterwards. A step of an optimizer
would have parameters and state twice. And those of the type of an argument that nobody reads after
the call.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx

from .output_plan import Output


def aliases(
    graph: Graph, planned: Sequence[Output], updates: Mapping[int, int], used: Sequence[int]
) -> dict[int, int]:
    """By position of a program's argument: its result that may take over the memory.

    planned: the call's outputs. updates: by the position of an output, the argument of the call
    that it is copied into. used: the call's arguments that the program takes.

    Not a result that is another output, too: the argument may be given for what it is updated to.
    """
    returned = {output.argument for output in planned}
    uses = collections.Counter(output.array for output in planned)
    results, placeholders = fx.results(graph), fx.placeholders(graph)
    place = {argument: i for i, argument in enumerate(used)}
    found: dict[int, int] = {}
    for output, argument in updates.items():
        result = planned[output].array
        if result is None or argument in returned or uses[result] > 1:
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


def taken_over(
    graph: Graph, donated: Collection[int], *, updates_only: bool = False
) -> dict[int, int]:
    """By position of a donated argument: the position of the result that takes over its memory.

    A result takes the argument that it updates (p, for p - lr * g), if that is donated; unless
    `updates_only`, the others are paired by shape and dtype.
    """
    position = {node: i for i, node in enumerate(fx.placeholders(graph))}
    free = {node for node, i in position.items() if i in donated}
    results = fx.results(graph)
    aliases: dict[int, int] = {}
    rest: list[int] = []
    for index, result in enumerate(results):
        origin = origin_of(result)
        if origin in free:
            free.discard(origin)
            aliases[position[origin]] = index
        else:
            rest.append(index)
    if updates_only:
        return aliases
    by_type: dict[Any, list[Node]] = {}
    for node in sorted(free, key=position.__getitem__):
        by_type.setdefault(_type(node), []).append(node)
    for index in rest:
        candidates = by_type.get(_type(results[index]))
        if candidates:
            aliases[position[candidates.pop(0)]] = index
    return aliases


def origin_of(node: Node, made_by: Any = None) -> Node:
    """What `node` is a new value of: the first operand of its own type, and so on to an argument.

    made_by: an op whose results are origins, too.
    """
    kind = _type(node)
    while node.op != "placeholder" and (made_by is None or node.target is not made_by):
        operands = [n for n in node.all_input_nodes if _type(n) == kind]
        if not operands:
            break
        node = operands[0]
    return node


def _type(node: Node) -> Any:
    value = node.meta["val"]
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else None
