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
from torch.fx import Graph, GraphModule, Node

from xla_dynamo.backend import metrics
from xla_dynamo.backend.capture.aot import GraphInfo
from xla_dynamo.backend.decompositions import eager_layout
from xla_dynamo.backend.graph import fx, rng_keys
from xla_dynamo.backend.lowering import Target, unsupported
from xla_dynamo.backend.lowering.source import first_location
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.passes.aten import dedupe_outputs
from xla_dynamo.backend.passes.aten.masked_sums import make_static
from xla_dynamo.backend.passes.aten.pad_dynamic_shapes import count_first
from xla_dynamo.backend.passes.static import as_strided
from xla_dynamo.backend.passes.static.decompose_unsupported import expand_refused
from xla_dynamo.backend.passes.static.specialize import Symbols, find_symbols, specialize, tidy
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.config import config
from xla_dynamo.errors import CompileError, UnsupportedOp

from . import partition, segments
from .launch import Request, compile_launch

Run = Callable[[list[Any]], Sequence[Any]]


def make_program(module: GraphModule, info: GraphInfo, options: Options) -> Run:
    """A boxed callable for `module`: it takes a list of arguments and may clear it."""
    constants = _lift_constants(module)
    keys = fx.lift_keys(module.graph)
    arguments = len(info.argument_names)
    places = dedupe_outputs.keep_once(module.graph)
    # Lifted constants are tensors that come again at every call.
    info = replace(
        info,
        argument_names=info.argument_names + ("constant",) * len(constants) + ("PRNG key",) * keys,
        static=info.static | set(range(arguments, arguments + len(constants))),
        visible=len(set(places[: info.visible])),
    )
    run = _program(module.graph, module, info, options)
    if constants or keys:
        run = _with_extras(run, constants, keys)
    return run if len(set(places)) == len(places) else dedupe_outputs.repeated(run, places)


def _with_extras(run: Run, constants: Sequence[torch.Tensor], keys: int) -> Run:
    def with_extras(args: list[Any]) -> Sequence[Any]:
        args.extend(constants)
        args.extend(rng_keys.new_key() for _ in range(keys))
        return run(args)

    return with_extras


def _program(graph: Graph, module: GraphModule, info: GraphInfo, options: Options) -> Run:
    """Split at ops whose output shape depends on data: what follows them waits for real sizes."""
    make_static(graph)
    count_first(graph)
    dynamic = {
        node: "its output shape depends on data"
        for node in graph.nodes
        if unsupported.is_data_dependent(node)
    }
    if not dynamic:
        return _Program(graph, module, info, options)
    unsupported.report(dynamic, options)
    names = iter(range(len(graph.nodes)))

    def compile_segment(segment: partition.Segment) -> Run:
        part = GraphInfo(
            f"{info.name} part {next(names)}",
            info.reason,
            tuple(node.name for node in segment.inputs),
            frozenset(),
            len(segment.outputs),
            info.apart,
        )
        return _Program(segment.graph, module, part, options)

    steps = partition.split(graph, dynamic)
    return segments.build(graph, steps, compile_segment, lambda n: _attribute(module, n))


class _Program:
    """The executables of one graph, by the values of its symbolic sizes."""

    def __init__(
        self, graph: Graph, module: GraphModule, info: GraphInfo, options: Options
    ) -> None:
        self._graph = graph
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
            if self._symbols.sources or self._symbols.runtime_ints:
                graph = specialize(self._graph, arguments, self._symbols)
            else:
                graph = fx.copy(self._graph)
                tidy(graph)
            run = _compile_static(graph, self._module, self._info, self._options, reason)
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
    graph: Graph, module: GraphModule, info: GraphInfo, options: Options, reason: str
) -> Run:
    """Compile a graph with static shapes, split at what cannot be lowered."""
    target = Target(options.platform or pjrt.default_platform(), options.matmul_precision)
    eager_layout.mend(graph)
    as_strided.resolve(graph)
    refused = unsupported.refused_nodes(graph, target)
    if expand_refused(graph, refused):
        refused = unsupported.refused_nodes(graph, target)
    if not refused:
        request = Request(info.name, reason, info.static, info.visible, options, info.apart)
        return _or_eager(graph, request)
    unsupported.report(refused, options)
    placeholders = {node: i for i, node in enumerate(fx.placeholders(graph))}
    visible = set(fx.results(graph)[: info.visible])
    parts = iter(range(len(graph.nodes)))

    def compile_segment(segment: partition.Segment) -> Run:
        resident = frozenset(
            i for i, n in enumerate(segment.inputs) if placeholders.get(n) in info.static
        )
        strided = any(n in visible for n in segment.outputs)
        name = f"{info.name} part {next(parts)}"
        outputs = len(segment.outputs) if strided else 0
        request = Request(name, reason, resident, outputs, options, info.apart)
        return _or_eager(segment.graph, request)

    steps = partition.split(graph, refused)
    again = torch.clone if info.apart else torch.Tensor.detach
    return segments.build(
        graph, steps, compile_segment, lambda n: _attribute(module, n), again=again
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


def _lift_constants(module: GraphModule) -> list[torch.Tensor]:
    """Turn tensor attributes of `module` into trailing placeholders, and return their values."""
    lifted: dict[str, Node] = {}
    values: list[torch.Tensor] = []
    graph = module.graph
    for node in list(graph.nodes):
        if node.op != "get_attr":
            continue
        value = _attribute(module, node)
        if not isinstance(value, torch.Tensor):
            continue
        if node.target not in lifted:
            placeholder = fx.append_placeholder(graph, f"constant_{len(values)}", node.meta)
            if "val" not in placeholder.meta:
                placeholder.meta["val"] = rng_keys.fake_mode(graph).from_tensor(value)
            lifted[node.target] = placeholder
            values.append(value)
        node.replace_all_uses_with(lifted[node.target])
        graph.erase_node(node)
    return values


def _attribute(module: GraphModule, node: Node) -> Any:
    value: Any = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value
