"""Compile a graph of AOTAutograd once for each combination of its symbolic sizes.

A call of a graph with static shapes finds its executable at once; a call of one with symbolic sizes
looks it up in a dictionary by those sizes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from xla_dynamo.backend import metrics, pipeline
from xla_dynamo.backend.buckets import NAMES, Buckets, programs
from xla_dynamo.backend.capture.aot import GraphInfo
from xla_dynamo.backend.graph import fx, rng_keys
from xla_dynamo.backend.lowering import unsupported
from xla_dynamo.backend.lowering.source import first_location
from xla_dynamo.backend.lowering.unsupported import is_data_dependent
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.passes.contract import Stage, WayIn
from xla_dynamo.backend.passes.padding.plan import PaddedGraph, Plan
from xla_dynamo.backend.passes.padding.sizes import Refused
from xla_dynamo.backend.passes.static.specialize import Symbols, find_symbols
from xla_dynamo.backend.runtime import on_device
from xla_dynamo.bookkeeping import optional
from xla_dynamo.bounded import Bounded
from xla_dynamo.config import config
from xla_dynamo.errors import CompileError, UnsupportedOp

from . import partition, segments
from .bucketed import Bucketed
from .launch import compile_launch
from .padded_call import Saved
from .request import Request, warn_of_eager

Run = Callable[[list[Any]], Sequence[Any]]


def make_program(
    module: GraphModule, info: GraphInfo, options: Options, way_in: WayIn = WayIn.COMPILE
) -> Run:
    """A boxed callable for `module`: it takes a list of arguments and may clear it."""
    known = (info.name, info.reason, info.static, info.visible)
    request = Request(*known, options, way_in, info.no_output_aliasing, info.capture)
    context = request.context()
    pipeline.run(Stage.ATEN, module, context)
    lifted, arguments = context.lifted, len(info.argument_names)
    constants, outputs = lifted.constants, lifted.outputs
    names = (*info.argument_names, *["constant"] * len(constants), *["PRNG key"] * lifted.keys)
    request = replace(
        request,
        # Lifted constants are tensors that come again at every call.
        resident=info.static | set(range(arguments, arguments + len(constants))),
        visible=len(set(outputs[: info.visible])),
    )
    kept = {position: name for name, position in zip(info.results, outputs, strict=False)}
    request = replace(
        request,
        results=tuple(kept[i] for i in sorted(kept)),
        updates={outputs[result]: argument for result, argument in info.updates},
        stores=info.is_inference,
    )
    run = _split_at_dynamic_shapes(module, request, names)
    if not constants and not lifted.keys and len(set(outputs)) == len(outputs):
        return run

    def run_lifted(args: list[Any]) -> Sequence[Any]:
        args.extend(constants)
        args.extend([rng_keys.new_key() for _ in range(lifted.keys)])
        results = run(args)
        return [results[output] for output in outputs]

    return run_lifted


def _split_at_dynamic_shapes(
    module: GraphModule, request: Request, argument_names: Sequence[str]
) -> Run:
    """Split at ops whose output shape depends on data: what follows them waits for real sizes."""
    graph = module.graph
    dynamic = {n: unsupported.DATA_DEPENDENT for n in graph.nodes if is_data_dependent(n)}
    if not dynamic:
        return _Program(graph, module, request, argument_names)
    unsupported.report(dynamic, request.options)

    def compile_segment(segment: partition.Segment) -> Run:
        part = _part(request, graph, segment, len(segment.outputs))
        return _Program(segment.graph, module, part, [node.name for node in segment.inputs])

    steps = partition.split(graph, dynamic)
    return segments.build(graph, steps, compile_segment, module, convert=on_device.host_of)


def _part(request: Request, graph: Graph, segment: partition.Segment, visible: int) -> Request:
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


class _Program:
    """The executables of one graph, by the values of its symbolic sizes."""

    def __init__(
        self, graph: Graph, module: GraphModule, request: Request, argument_names: Sequence[str]
    ) -> None:
        self._graph = graph
        self._module = module
        self._request = request
        self._argument_names = argument_names
        self._symbols: Symbols = find_symbols(graph)
        arguments = {node: position for position, node in enumerate(fx.placeholders(graph))}
        # Ints that are results too: they stay ints, though the executable takes tensors.
        self._passed = {
            index: arguments[result]
            for index, result in enumerate(fx.results(graph))
            if isinstance(result, Node) and arguments.get(result) in self._symbols.runtime_ints
        }
        # Least recently used first; what is dropped may come back, at the price of a compile.
        self._table: Bounded[tuple[int, ...], Run] = Bounded(request.options.max_executables)
        self._compiled = 0
        self._lock = threading.Lock()
        self._bucketed = self._bucketed_or_none()

    def _bucketed_or_none(self) -> Bucketed | None:
        request = self._request
        if request.options.bucket is None or not self._symbols.sources:
            return None
        names = [
            name if dimension is None else f"{name} dimension {dimension}"
            for position, dimension in self._symbols.sources
            for name in (self._argument_names[position],)
        ]
        return Bucketed(
            self._graph,
            self._symbols,
            names,
            request.options.bucket,
            request.capture,
            request.results,
            request.visible,
            request.options.max_executables,
        )

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        symbols = self._symbols
        if symbols.sources:
            key = symbols.key(arguments)
            bucketed = self._bucketed
            run = bucketed.known(key) if bucketed is not None else self._table.get(key)
            run = run or self._compile(key, arguments)
            with contextlib.suppress(KeyError):  # another thread may have evicted it
                self._table.move_to_end(key)
        else:
            run = self._table.get(()) or self._compile((), arguments)
        if not symbols.runtime_ints:
            return run(arguments)
        passed = [(index, arguments[position]) for index, position in self._passed.items()]
        for position in symbols.runtime_ints:
            arguments[position] = torch.tensor(arguments[position], device="cpu")
        results = run(arguments)
        if passed:
            results = list(results)
            for index, number in passed:
                results[index] = number
        return results

    def _compile(self, key: tuple[int, ...], arguments: list[Any]) -> Run:
        with self._lock:
            self._refuse_ragged(arguments)
            if self._bucketed is None:
                return self._exact(key, arguments)
            run = self._bucketed.run(key, self._compile_padded)
            if run is not None:
                return run
            run = self._without_padding(self._bucketed.saved(key), key, arguments)
            self._bucketed.keep(key, run)
            return run

    def _without_padding(
        self, saved: Saved | None, key: tuple[int, ...], arguments: Sequence[Any]
    ) -> Run:
        if saved is None:
            return self._exact(key, arguments)
        exact = self._exact(key, saved.all_without_padding(arguments))
        return lambda given: exact(saved.all_without_padding(given))

    def _exact(self, key: tuple[int, ...], arguments: Sequence[Any]) -> Run:
        """The program for exactly these sizes."""
        if key not in self._table:
            self._table[key] = self._compile_exact(key, arguments)
        return self._table[key]

    def _compile_padded(self, plan: Plan, reason: str) -> tuple[Run, PaddedGraph]:
        request = replace(self._request, reason=reason, updates={})
        run, padded = _compile_for(fx.copy(self._graph), self._module, request, padding=plan)
        assert padded is not None
        self._count(reason)
        return run, padded

    def _compile_exact(self, key: tuple[int, ...], arguments: Sequence[Any]) -> Run:
        request = replace(self._request, reason=self._reason(key))
        is_dynamic = self._symbols.sources or self._symbols.runtime_ints
        graph = fx.copy(self._graph)
        given = arguments if is_dynamic else None
        run, _ = _compile_for(graph, self._module, request, arguments=given)
        self._count(request.reason)
        return run

    def _count(self, reason: str) -> None:
        self._compiled += 1
        if self._compiled >= config().recompile_warning:
            self._warn(reason)

    def _refuse_ragged(self, arguments: Sequence[Any]) -> None:
        """Raise for a size that is no number: that of a nested tensor, which Dynamo passes."""
        for position, argument in enumerate(arguments):
            if isinstance(argument, torch.SymInt):
                location = first_location(self._graph)
                reason = "It is given a jagged nested tensor, whose size is no number."
                remedy = (
                    "Pass values() and offsets() instead, and make the nested tensor inside, by "
                    "torch.nested.nested_tensor_from_jagged(values, offsets)."
                )
                raise UnsupportedOp(
                    f"{self._request.name} (first op at {location}) cannot be compiled for XLA. "
                    f"{reason} {remedy} (argument {self._argument_names[position]})",
                    location=str(location),
                    reason=reason,
                    remedy=remedy,
                )

    @optional("not known")
    def _reason(self, key: tuple[int, ...]) -> str:
        """Which argument and dimension differ from the most similar key."""
        if not self._table:
            return self._request.reason

        def distance(old: tuple[int, ...]) -> int:
            return sum(a != b for a, b in zip(old, key, strict=True))

        nearest = min(self._table, key=distance)
        changes = []
        sources = self._symbols.sources
        for (position, dimension), old, new in zip(sources, nearest, key, strict=True):
            if old != new:
                name = self._argument_names[position]
                where = f"{name} dimension {dimension}" if dimension is not None else name
                changes.append(f"{where} changed from {old} to {new}")
        return ", ".join(changes) or "the executable had been evicted"

    @optional(None)
    def _warn(self, reason: str) -> None:
        metrics.warn_once(
            ("recompile", self._request.capture),
            f"{self._request.name} (first op at {first_location(self._graph)}) was compiled "
            f"{self._compiled} times. Last: {reason}. XLA needs one executable per shape: "
            f"{self._proposal()}, or drop the last short batch (drop_last=True).",
            metrics.RecompileWarning,
        )

    def _proposal(self) -> str:
        """What to do about so many sizes, with numbers."""
        if self._request.options.bucket is not None:
            return "choose larger buckets, docs/shapes.md says how"
        keys = list(self._table)
        found = {choice: programs(Buckets(choice), keys) for choice in (*NAMES, 64)}
        numbers = ", ".join(f"{count} with {choice!r}" for choice, count in found.items())
        return (
            f"options={{'bucket': ...}} (or XLA_DYNAMO_BUCKET) pads sizes to a few, with the same "
            f"results. Of these {len(keys)} programs it would have made {numbers}. docs/shapes.md "
            "says what it guarantees. Otherwise pad that argument yourself"
        )


def _compile_for(
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
    return _compile_static(graph, module, request, context.lifted.unsupported), padded


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
        part = _part(request, graph, segment, len(segment.outputs) if is_visible else 0)
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
