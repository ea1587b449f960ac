"""Compile a graph for given sizes: split at what PyTorch computes, eager if a compiler refuses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from xla_dynamo.backend import metrics, pipeline
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering import unsupported
from xla_dynamo.backend.lowering.source import first_location
from xla_dynamo.backend.passes.contract import Stage
from xla_dynamo.backend.passes.padding.plan import PaddedGraph
from xla_dynamo.backend.passes.padding.sizes import Refused
from xla_dynamo.backend.runtime import on_device
from xla_dynamo.errors import CompileError, UnsupportedOp

from . import known_split, partition, segments, small_parts, torch_kernels
from .compile import describe
from .launch import compile_launch
from .parts import Parts, Whole, watched
from .request import Request, warn_of_eager
from .turns import Turns

Run = Callable[[list[Any]], Sequence[Any]]


def compile_for(
    graph: Graph, module: GraphModule, request: Request, **sizes: Any
) -> tuple[Run, PaddedGraph | None]:
    """Compile a graph for `sizes`, a context's arguments or padding.

    Raises:
        Refused: what is padded has no padded form, or would run on the CPU.
    """
    context = replace(request.context(), **sizes)
    is_static = context.arguments is None and context.padding is None
    key = known_split.key_of(graph, request) if is_static else None
    found = None if key is None else known_split.find(key, graph, request)
    if found is not None:
        return found, None
    pipeline.run(Stage.STATIC, graph, context)
    padded = context.lifted.padded
    if padded is not None:
        for node in context.lifted.unsupported:
            if node.meta.get("padded"):
                raise Refused.at(node, "it runs on the CPU", node.meta["padded"])
        # Calls of the same sizes come with the same tensors of their numbers.
        numbers = range(len(padded.names), len(fx.placeholders(graph)))
        request = replace(request, resident=request.resident.union(numbers))
    return _compile_static(graph, module, request, context.lifted.unsupported, key), padded


def part_of(request: Request, graph: Graph, segment: partition.Segment, visible: int) -> Request:
    """How a segment of `graph` is compiled."""
    given = fx.placeholders(graph)
    known = {node for position, node in enumerate(given) if position in request.resident}
    results = set(fx.results(graph))
    return replace(
        request,
        name=f"{request.name} part {segment.index}",
        resident=frozenset(i for i, node in enumerate(segment.inputs) if node in known),
        visible=visible,
        between=frozenset(i for i, node in enumerate(segment.outputs) if node not in results),
        updates={},
    )


def _compile_static(
    graph: Graph,
    module: GraphModule,
    request: Request,
    refused: dict[Node, Any],
    key: str | None = None,
) -> Run:
    """Compile a static graph, split at what cannot be lowered and at PyTorch's kernels.

    key: where it is kept on disk if it is split at kernels alone.
    """
    kernels = torch_kernels.between_programs(graph, request)
    if not refused and not kernels:
        return _or_eager(graph, request)
    if not refused:
        parts = Parts()
        turns, *_ = in_turn(graph, request, kernels, parts)
        whole = recorded(parts, request, graph)
        if key is not None:
            known_split.remember(key, turns, whole)
        return watched(segments.runner(turns.graph, module), whole)
    unsupported.report(refused, request.options)
    steps = partition.split(graph, {*refused, *kernels})
    compile_segment = functools.partial(_compile_segment, graph, request, steps, bool(kernels))
    runs = [compile_segment(step) for step in steps if isinstance(step, partition.Segment)]
    turns = _connected(graph, request, steps, runs, kernels)
    return segments.runner(turns.graph, module)


def in_turn(
    graph: Graph,
    request: Request,
    kernels: Collection[Node],
    parts: Parts,
    others: Sequence[Callable[[], Any]] = (),
) -> list[Any]:
    """Programs of XLA and PyTorch's kernels of `graph` in turn; and what `others` compile.

    All are compiled at once, as parts of one graph.

    kernels: the calls that PyTorch computes, with what is small between them.
    """
    steps, small = small_parts.opened(partition.split(graph, kernels, late=True), kernels)
    kernels = [*kernels, *small]
    request = replace(request, parts=parts)
    jobs = [
        functools.partial(_compile_segment, graph, request, steps, True, step)
        for step in steps
        if isinstance(step, partition.Segment)
    ]
    made = parts.compiled([*jobs, *others], lambda job: job())
    runs, rest = made[: len(jobs)], made[len(jobs) :]
    return [_connected(graph, request, steps, runs, kernels), *rest]


def recorded(parts: Parts, request: Request, graph: Graph) -> Whole | None:
    """Record what was compiled as one compile, of `graph`."""
    values = [node.meta["val"] for node in fx.placeholders(graph) if node.users]
    shapes = tuple(describe(value) for value in values if isinstance(value, torch.Tensor))
    where = str(first_location(graph))
    some = parts.some()
    if some is None:  # PyTorch computes it all: that was found out now
        parts.from_disk = False
    told = shapes, len(fx.calls(graph)), request.reason, where
    return parts.record(request.name, *told, some, graph)


def _compile_segment(
    graph: Graph,
    request: Request,
    steps: Sequence[partition.Segment | Node],
    is_strided: bool,
    segment: partition.Segment,
) -> Run:
    """The launch of a segment.

    is_strided: PyTorch's kernels follow, which compute in the order of memory that eager has,
        channels_last or not.
    """
    visible = set(fx.results(graph)[: request.visible])
    is_visible = is_strided or not visible.isdisjoint(segment.outputs)
    part = part_of(request, graph, segment, len(segment.outputs) if is_visible else 0)
    return _or_eager(segment.graph, replace(part, updates=_updates(graph, request, segment, steps)))


def _connected(
    graph: Graph,
    request: Request,
    steps: Sequence[partition.Segment | Node],
    runs: Sequence[Run],
    kernels: Collection[Node],
) -> Turns:
    functions = {node: torch_kernels.kernel(node) for node in kernels}
    calls, names = segments.connect(
        graph,
        steps,
        lambda segment: runs[segment.index],
        convert=on_device.host_of,
        copy_duplicate=torch.clone if request.no_output_aliasing else torch.Tensor.detach,
        kernels=functions,
        strided=set(fx.results(graph)[: request.visible]),
    )
    names.update({function: torch_kernels.name(node) for node, function in functions.items()})
    return Turns(calls, names, runs)


def _updates(
    graph: Graph,
    request: Request,
    segment: partition.Segment,
    steps: Sequence[partition.Segment | Node],
) -> dict[int, int]:
    """The results of a segment that are copied into arguments which nothing reads later."""
    results, given = fx.results(graph), fx.placeholders(graph)
    later = steps[steps.index(segment) + 1 :]
    sources = (s.all_input_nodes if isinstance(s, Node) else s.inputs for s in later)
    read = {base for nodes in sources for node in nodes for base in fx.bases(node)}
    found = {}
    for result, argument in request.updates.items():
        new, old = results[result], given[argument]
        if new in segment.outputs and old in segment.inputs and old not in read:
            found[segment.outputs.index(new)] = segment.inputs.index(old)
    return found


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
