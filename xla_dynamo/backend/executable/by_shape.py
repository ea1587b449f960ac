"""One FX graph of AOTAutograd -> a callable that compiles once per combination of sizes.

The hit path of a graph with static shapes is a call; of one with symbolic sizes, a look-up in a
dictionary by those sizes.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from xla_dynamo.backend import metrics, pipeline
from xla_dynamo.backend.capture.aot import GraphInfo
from xla_dynamo.backend.graph import edit, fx, rng_keys
from xla_dynamo.backend.lowering import unsupported
from xla_dynamo.backend.lowering.source import first_location
from xla_dynamo.backend.lowering.unsupported import is_data_dependent
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.passes.contract import Context, Lifted, Stage, WayIn, target_of
from xla_dynamo.backend.passes.static.specialize import Symbols, find_symbols
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.config import config
from xla_dynamo.errors import CompileError, UnsupportedOp

from . import partition, segments
from .launch import Request, compile_launch

Run = Callable[[list[Any]], Sequence[Any]]


def make_program(
    module: GraphModule, info: GraphInfo, options: Options, way_in: WayIn = WayIn.COMPILE
) -> Run:
    """A boxed callable for `module`: it takes a list of arguments and may clear it."""
    target = target_of(options, options.platform or pjrt.default_platform())
    context = Context(info.name, way_in, target)
    pipeline.run(Stage.ATEN, module, context)
    lifted, arguments = context.lifted, len(info.argument_names)
    constants, outputs = lifted.constants, lifted.outputs
    names = ("constant",) * len(constants) + ("PRNG key",) * lifted.keys
    info = replace(
        info,
        argument_names=info.argument_names + names,
        # Lifted constants are tensors that come again at every call.
        static=info.static | set(range(arguments, arguments + len(constants))),
        visible=len(set(outputs[: info.visible])),
    )
    run = _split_at_dynamic_shapes(module, info, options, context)
    if constants or lifted.keys:
        run = _with_lifted(run, lifted)
    return run if len(set(outputs)) == len(outputs) else _with_repeats(run, outputs)


def _with_lifted(run: Run, lifted: Lifted) -> Run:
    """`run`, given the constants of the graph and fresh keys after its arguments."""
    constants, keys = lifted.constants, range(lifted.keys)

    def with_lifted(args: list[Any]) -> Sequence[Any]:
        args.extend(constants)
        args.extend([rng_keys.new_key() for _ in keys])
        return run(args)

    return with_lifted


def _with_repeats(run: Run, outputs: Sequence[int]) -> Run:
    """`run`, with its results at all the positions where the graph had them."""

    def with_repeats(args: list[Any]) -> Sequence[Any]:
        results = run(args)
        return [results[output] for output in outputs]

    return with_repeats


def _split_at_dynamic_shapes(
    module: GraphModule, info: GraphInfo, options: Options, context: Context
) -> Run:
    """Split at ops whose output shape depends on data: what follows them waits for real sizes."""
    graph = module.graph
    dynamic = {n: unsupported.DATA_DEPENDENT for n in graph.nodes if is_data_dependent(n)}
    if not dynamic:
        return _Program(graph, module, info, options, context)
    unsupported.report(dynamic, options)
    names = iter(range(len(graph.nodes)))

    def compile_segment(segment: partition.Segment) -> Run:
        part = GraphInfo(
            f"{info.name} part {next(names)}",
            info.reason,
            tuple(node.name for node in segment.inputs),
            frozenset(),
            len(segment.outputs),
            info.no_output_aliasing,
        )
        return _Program(segment.graph, module, part, options, context)

    steps = partition.split(graph, dynamic)
    return segments.build(graph, steps, compile_segment, lambda n: edit.attribute(module, n))


class _Program:
    """The executables of one graph, by the values of its symbolic sizes."""

    def __init__(
        self,
        graph: Graph,
        module: GraphModule,
        info: GraphInfo,
        options: Options,
        context: Context,
    ) -> None:
        self._graph = graph
        self._context = context
        self._module = module
        self._info = info
        self._options = options
        self._symbols: Symbols = find_symbols(graph)
        self._table: collections.OrderedDict[tuple[int, ...], Run] = collections.OrderedDict()
        self._compiled = 0
        self._lock = threading.Lock()

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        symbols = self._symbols
        if symbols.sources:
            key = symbols.key(arguments)
            run = self._table.get(key) or self._compile(key, arguments)
            with contextlib.suppress(KeyError):  # another thread may have evicted it
                self._table.move_to_end(key)
        else:
            run = self._table.get(()) or self._compile((), arguments)
        if symbols.runtime_ints:
            for position in symbols.runtime_ints:
                arguments[position] = torch.tensor(arguments[position])
        return run(arguments)

    def _compile(self, key: tuple[int, ...], arguments: list[Any]) -> Run:
        with self._lock:
            if key in self._table:
                return self._table[key]
            reason = self._reason(key)
            varies = self._symbols.sources or self._symbols.runtime_ints
            context = replace(
                self._context,
                name=self._info.name,
                arguments=arguments if varies else None,
                lifted=Lifted(),
            )
            graph = fx.copy(self._graph)
            run = _compile_static(graph, self._module, self._info, self._options, reason, context)
            self._table[key] = run
            self._compiled += 1
            # Least recently used first; it may come back, at the price of a compile.
            while len(self._table) > self._options.max_executables:
                self._table.popitem(last=False)
            if self._compiled >= config().recompile_warning:
                self._warn(reason)
            return run

    def _reason(self, key: tuple[int, ...]) -> str:
        """Which argument and dimension differ from the most similar key seen."""
        if not self._compiled:
            return self._info.reason

        def distance(old: tuple[int, ...]) -> int:
            return sum(a != b for a, b in zip(old, key, strict=True))

        nearest = min(self._table, key=distance)
        changes = []
        sources = self._symbols.sources
        for (position, dimension), old, new in zip(sources, nearest, key, strict=True):
            if old != new:
                name = self._info.argument_names[position]
                where = f"{name} dimension {dimension}" if dimension is not None else name
                changes.append(f"{where} changed from {old} to {new}")
        return ", ".join(changes) or "the executable had been evicted"

    def _warn(self, reason: str) -> None:
        metrics.warn_once(
            ("recompile", id(self)),
            f"{self._info.name} (first op at {first_location(self._graph)}) was compiled "
            f"{self._compiled} times. Last: {reason}. XLA needs one executable per shape: pad that "
            "argument to a few fixed sizes, or drop the last short batch (drop_last=True).",
            metrics.RecompileWarning,
        )


def _compile_static(
    graph: Graph,
    module: GraphModule,
    info: GraphInfo,
    options: Options,
    reason: str,
    context: Context,
) -> Run:
    """Compile a graph whose sizes become numbers, split at what cannot be lowered."""
    pipeline.run(Stage.STATIC, graph, context)
    refused = context.lifted.unsupported
    whole = Request(
        info.name,
        reason,
        info.static,
        info.visible,
        options,
        context.way_in,
        info.no_output_aliasing,
    )
    if not refused:
        return _or_eager(graph, whole)
    unsupported.report(refused, options)
    placeholders = {node: i for i, node in enumerate(fx.placeholders(graph))}
    visible = set(fx.results(graph)[: info.visible])
    parts = iter(range(len(graph.nodes)))

    def compile_segment(segment: partition.Segment) -> Run:
        resident = frozenset(
            i for i, n in enumerate(segment.inputs) if placeholders.get(n) in info.static
        )
        strided = any(n in visible for n in segment.outputs)
        part = replace(
            whole,
            name=f"{info.name} part {next(parts)}",
            resident=resident,
            visible=len(segment.outputs) if strided else 0,
        )
        return _or_eager(segment.graph, part)

    steps = partition.split(graph, refused)
    again = torch.clone if info.no_output_aliasing else torch.Tensor.detach
    return segments.build(
        graph, steps, compile_segment, lambda n: edit.attribute(module, n), again=again
    )


def _or_eager(graph: Graph, request: Request) -> Run:
    """The launch of `graph`; if a compiler refuses it, eager PyTorch, and a warning."""
    original = fx.copy(graph)  # compiling edits it
    try:
        return compile_launch(graph, request)
    except (CompileError, UnsupportedOp) as error:
        if request.options.fallback == "error":
            raise UnsupportedOp(f"{request.name} cannot be compiled: {error}") from error
        metrics.warn_once(
            ("graph", str(error)),
            f"{request.name} runs on the CPU in eager PyTorch: {error}",
            metrics.FallbackWarning,
        )

        eager = GraphModule({}, original)
        declared = [node.meta.get("val") for node in fx.placeholders(original)]

        def run(arguments: list[Any]) -> Sequence[Any]:
            metrics.count("fallback.graph")
            return eager(*map(segments.as_declared, arguments, declared))

        return run
