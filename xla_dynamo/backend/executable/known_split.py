"""Graphs of torch.compile that are split at kernels, by their text before the static stage.

What else decides what becomes of one is in its key too: the request, and which arguments are the
user's. Those whose sizes are symbols have no key, nor those with a function of this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import Graph

from xla_dynamo.backend.graph import error_origin, fx, plain
from xla_dynamo.backend.graph.text import is_text_complete, text_of
from xla_dynamo.backend.lowering.source import first_location, location_of
from xla_dynamo.backend.passes.contract import WayIn
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.bookkeeping import optional

from . import known, known_turns, segments, torch_kernels
from .parts import Whole, watched
from .request import Request
from .turns import Turns

Run = Callable[[list[Any]], Sequence[Any]]


@optional(None)
def key_of(graph: Graph, request: Request) -> str | None:
    """The key of a static graph before its passes; None where it is not split, or has none.

    Its nodes are numbered: a kernel names the line of its number.
    """
    if request.way_in is not WayIn.COMPILE or not is_text_complete(graph):
        return None
    if not torch_kernels.may_be_split(graph, request):
        return None
    error_origin.number(graph.nodes)
    users = [bool(node.meta.get("argument")) for node in fx.placeholders(graph)]
    asked = sorted(request.resident), request.visible, request.no_output_aliasing, request.stores
    texts = text_of(graph), repr(users), repr(asked), repr(sorted(request.updates.items()))
    return known.key_of(["split", *texts], request.options, pjrt.device("cpu"))


@optional(None)
def find(key: str, graph: Graph, request: Request) -> Run | None:
    """What an earlier process left of a graph, if all of it is there."""
    entry = known.find(key)
    if entry is None:
        return None
    nodes, location = list(graph.nodes), str(first_location(graph))
    devices = [pjrt.device("cpu")] * len(entry.programs)
    found = known_turns.load(entry, request, devices, location)
    if found is None:
        return None

    def line(number: int | None) -> str:
        return "(no source line)" if number is None else str(location_of(nodes[number]))

    turns = known_turns.of_json(entry.details["turns"], found.programs, line)
    shapes, count = entry.details["record"]
    record = request.name, tuple(shapes), count, request.reason, location
    whole = found.parts.record(*record, next(iter(found.programs), None), graph)
    return watched(segments.runner(turns.graph), whole)


@optional(None)
def remember(key: str, turns: Turns, whole: Whole | None) -> None:
    """Keep what a graph has become, if it is all programs and kernels."""
    if whole is None:
        return
    try:
        told, programs = known_turns.to_json(turns)
    except plain.NotPlain:
        return
    record = [whole.record.shapes, whole.record.nodes]
    known.remember(key, programs, {"turns": told, "record": record})
