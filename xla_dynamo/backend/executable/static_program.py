"""Compile a graph for given sizes: split at what cannot be lowered, eager if a compiler refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from xla_dynamo.backend import metrics, pipeline
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering import unsupported
from xla_dynamo.backend.passes.contract import Stage
from xla_dynamo.backend.passes.padding.plan import PaddedGraph
from xla_dynamo.backend.passes.padding.sizes import Refused
from xla_dynamo.backend.runtime import on_device
from xla_dynamo.errors import CompileError, UnsupportedOp

from . import partition, segments
from .launch import compile_launch
from .request import Request, warn_of_eager

Run = Callable[[list[Any]], Sequence[Any]]


def compile_for(
    graph: Graph, module: GraphModule, request: Request, **sizes: Any
) -> tuple[Run, PaddedGraph | None]:
    """Compile a graph for `sizes`, a context's arguments or padding.

    Raises:
        Refused: what is padded has no padded form, or would run on the CPU.
    """
    context = replace(request.context(), **sizes)
    pipeline.run(Stage.STATIC, graph, context)
    padded = context.lifted.padded
    if padded is not None:
        for node in context.lifted.unsupported:
            if node.meta.get("padded"):
                raise Refused.at(node, "it runs on the CPU", node.meta["padded"])
        # Calls of the same sizes come with the same tensors of their numbers.
        numbers = range(len(padded.names), len(fx.placeholders(graph)))
        request = replace(request, resident=request.resident.union(numbers))
    return _compile_static(graph, module, request, context.lifted.unsupported), padded


def part_of(request: Request, graph: Graph, segment: partition.Segment, visible: int) -> Request:
    """How a segment of `graph` is compiled."""
    given = fx.placeholders(graph)
    known = {node for position, node in enumerate(given) if position in request.resident}
    return replace(
        request,
        name=f"{request.name} part {segment.index}",
        resident=frozenset(i for i, node in enumerate(segment.inputs) if node in known),
        visible=visible,
        updates={},
    )


def _compile_static(
    graph: Graph, module: GraphModule, request: Request, refused: dict[Node, Any]
) -> Run:
    """Compile a static graph, split at what cannot be lowered."""
    if not refused:
        return _or_eager(graph, request)
    unsupported.report(refused, request.options)
    visible = set(fx.results(graph)[: request.visible])

    def compile_segment(segment: partition.Segment) -> Run:
        is_visible = not visible.isdisjoint(segment.outputs)
        part = part_of(request, graph, segment, len(segment.outputs) if is_visible else 0)
        return _or_eager(segment.graph, part)

    copy = torch.clone if request.no_output_aliasing else torch.Tensor.detach
    return segments.build(
        graph,
        partition.split(graph, refused),
        compile_segment,
        module,
        convert=on_device.host_of,
        copy_duplicate=copy,
    )


def _or_eager(graph: Graph, request: Request) -> Run:
    """The launch of `graph`; if a compiler refuses it, eager PyTorch, and a warning."""
    original = fx.copy(graph)  # compiling edits it
    try:
        return compile_launch(graph, request)
    except (CompileError, UnsupportedOp) as error:
        if request.options.fallback == "error":
            raise UnsupportedOp(f"{request.name} cannot be compiled: {error}") from error
        warn_of_eager(request, error)

    eager = GraphModule({}, original)
    declared = [node.meta.get("val") for node in fx.placeholders(original)]

    def run(arguments: list[Any]) -> Sequence[Any]:
        metrics.count("fallback.graph")
        on_host = map(on_device.host_of, arguments)
        return eager(*map(segments.as_declared, on_host, declared))

    return run
