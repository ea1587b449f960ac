"""Compile a graph of AOTAutograd once for each combination of its symbolic sizes.

A call of a graph with static shapes finds its executable at once; a call of one with symbolic sizes
looks it up in a dictionary by those sizes.
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

from xla_dynamo.backend import pipeline
from xla_dynamo.backend.capture.aot import GraphInfo
from xla_dynamo.backend.graph import fx, rng_keys
from xla_dynamo.backend.lowering import unsupported
from xla_dynamo.backend.lowering.unsupported import is_data_dependent
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.passes.contract import Stage, WayIn
from xla_dynamo.backend.passes.padding.plan import PaddedGraph, Plan
from xla_dynamo.backend.passes.static.specialize import Symbols, find_symbols
from xla_dynamo.backend.runtime import on_device, transfers
from xla_dynamo.backend.runtime.partitions import Partitions
from xla_dynamo.bounded import Bounded
from xla_dynamo.config import config

from . import input_layout, partition, segments, size_changes, static_program
from .bucketed import Bucketed
from .device_padding import DevicePadding
from .launch import compile_launch, device_of
from .padded_call import Saved
from .request import Request

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
    times = collections.Counter(outputs)  # also saved for the backward pass, it is no update only
    kept = {position: name for name, position in zip(info.results, outputs, strict=False)}
    request = replace(
        request,
        results=tuple(kept[i] for i in sorted(kept)),
        updates={outputs[r]: argument for r, argument in info.updates if times[outputs[r]] == 1},
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
        part = static_program.part_of(request, graph, segment, len(segment.outputs))
        return _Program(segment.graph, module, part, [node.name for node in segment.inputs])

    steps = partition.split(graph, dynamic)
    return segments.build(graph, steps, compile_segment, module, convert=on_device.host_of)


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
        self._only: Run | None = None  # what runs, where no sizes change

    def _names(self) -> list[str]:
        """What has the sizes of a key, as the user calls it."""
        names = self._argument_names
        return [
            names[i] if dimension is None else f"{names[i]} dimension {dimension}"
            for i, dimension in self._symbols.sources
        ]

    def _bucketed_or_none(self) -> Bucketed | None:
        request = self._request
        if request.options.bucket is None or not self._symbols.sources:
            return None
        return Bucketed(
            self._graph,
            self._symbols,
            self._names(),
            request.options.bucket,
            request.capture,
            request.results,
            request.visible,
            request.options.max_executables,
            there=self._device_padding(),
        )

    def _device_padding(self) -> DevicePadding | None:
        """What pads on a device with memory of its own."""
        device, home = device_of(self._graph, self._request.options)
        if isinstance(device, Partitions) or not transfers.is_apart(device):
            return None
        name = f"{self._request.name} padding"
        known = {"resident": frozenset(), "visible": 0, "results": (), "updates": {}}

        def compile(graph: Graph, reason: str) -> Run:
            request = replace(self._request, name=name, reason=reason, **known)
            pipeline.run(Stage.STATIC, graph, request.context())
            return compile_launch(graph, request)

        return DevicePadding(compile, home)

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        if self._only is not None:
            return self._only(arguments)
        symbols = self._symbols
        key = symbols.key(arguments) if symbols.sources else ()
        if self._bucketed is not None:
            run = self._bucketed.known(key) or self._compile(key, arguments)
        else:
            run = self._table.get(key) or self._compile(key, arguments)
            if key:
                with contextlib.suppress(KeyError):  # another thread may have evicted it
                    self._table.move_to_end(key)
        if not symbols.runtime_ints:
            if not symbols.sources:
                self._only = run
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
            size_changes.refuse_ragged(self._graph, self._request, self._argument_names, arguments)
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
        if key in self._table:
            self._table.move_to_end(key)
            return self._table[key]
        run = self._compile_exact(key, arguments)
        if self._bucketed is not None and len(self._table) == self._table.capacity:
            self._bucketed.forget_calls()
        self._table[key] = run
        return run

    def _compile_padded(self, plan: Plan, reason: str) -> tuple[Run, PaddedGraph]:
        request = replace(self._request, reason=reason, updates={})
        graph = fx.copy(self._graph)
        run, padded = static_program.compile_for(graph, self._module, request, padding=plan)
        assert padded is not None
        self._count(reason)
        return run, padded

    def _compile_exact(self, key: tuple[int, ...], arguments: Sequence[Any]) -> Run:
        request = replace(self._request, reason=self._reason(key))
        is_dynamic = self._symbols.sources or self._symbols.runtime_ints
        graph = fx.copy(self._graph)
        input_layout.note_row_major(graph, arguments)
        given = arguments if is_dynamic else None
        run, _ = static_program.compile_for(graph, self._module, request, arguments=given)
        self._count(request.reason)
        return run

    def _reason(self, key: tuple[int, ...]) -> str:
        why = None if self._bucketed is None else self._bucketed.why_exact(key)
        if why is not None:
            return why
        if not self._table:
            return self._request.reason
        return size_changes.changed(self._names(), key, self._table)

    def _count(self, reason: str) -> None:
        self._compiled += 1
        if self._compiled >= config().recompile_warning:
            size_changes.warn(self._graph, self._request, self._compiled, reason, [*self._table])
