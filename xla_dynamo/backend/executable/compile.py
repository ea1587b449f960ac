"""Lower a static FX graph and compile it, or load what the disk cache has of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, Node

from xla_dynamo import interrupts
from xla_dynamo.backend import metrics, pipeline
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.text import is_text_complete, text_of
from xla_dynamo.backend.lowering import dtypes as dtype_table
from xla_dynamo.backend.lowering.lower import Lowered, lower_graph
from xla_dynamo.backend.lowering.source import first_location
from xla_dynamo.backend.passes.contract import Context, Stage, WayIn
from xla_dynamo.backend.runtime import cache, pjrt, trial_process
from xla_dynamo.backend.runtime.partitions import Partitions
from xla_dynamo.bookkeeping import optional
from xla_dynamo.config import config
from xla_dynamo.errors import CompileError

from . import compile_notice, known, partitioned, precision_notice, trial, ynnpack
from .parts import tell
from .request import Request


@interrupts.deferred(once=True)
def compile_executable(
    graph: Graph,
    request: Request,
    device: pjrt.Where,
    aliases: Mapping[int, int] = MappingProxyType({}),
) -> pjrt.Executable:
    """Lower and compile a graph whose results are distinct computed tensors (it is edited).

    `aliases`: argument position -> position of the result that may take over its memory.
    """
    if request.parts is not None and not aliases:
        return request.parts.one_of_each(graph, lambda g: _compile(g, request, device, aliases))
    return _compile(graph, request, device, aliases)


def _compile(
    graph: Graph, request: Request, device: pjrt.Where, aliases: Mapping[int, int]
) -> pjrt.Executable:
    """The executable, from disk by the graph's text if an earlier process has left it there."""
    precision_notice.tell(graph, request.context(pjrt.platform(device)))
    key = _known_key(graph, request, device, aliases)
    found = None if key is None else known.find(key)
    if found is not None:
        location = str(first_location(graph))
        with _others_meanwhile(request):
            executable = known.load(found.programs[0], request, device, location, graph)
        if executable is not None:
            return executable
    executable = _lowered_and_compiled(graph, request, device, aliases)
    if key is not None:
        known.remember(key, [executable], None)
    return executable


@optional(None)
def _known_key(
    graph: Graph, request: Request, device: pjrt.Where, aliases: Mapping[int, int]
) -> str | None:
    """Of a graph of torch.compile, or a part of one that was recorded.

    Other recorded graphs have keys that are known before the graph is.
    """
    is_part = request.way_in is WayIn.LAZY and request.parts is not None
    if not (is_part or request.way_in is WayIn.COMPILE) or isinstance(device, (tuple, Partitions)):
        return None
    if not is_text_complete(graph):
        return None
    texts = [text_of(graph), repr(sorted(aliases.items()))]
    return known.key_of([*texts, "recorded"] if is_part else texts, request.options, device)


def _others_meanwhile(request: Request) -> AbstractContextManager[None]:
    return nullcontext() if request.parts is None else request.parts.others_meanwhile()


def _lowered_and_compiled(
    graph: Graph, request: Request, device: pjrt.Where, aliases: Mapping[int, int]
) -> pjrt.Executable:
    context = request.context(pjrt.platform(device))
    context = replace(context, partitioned=isinstance(device, Partitions))
    keep_text = metrics.wants_stages()
    start = time.perf_counter()
    shardings = partitioned.attributes(device)
    lowered = lower(graph, context, keep_text=keep_text, aliases=aliases, shardings=shardings)
    lowered_at = time.perf_counter()
    inputs = [_signature(node) for node in fx.placeholders(graph)]
    outputs = [_signature(node) for node in fx.results(graph)]
    with _others_meanwhile(request):
        made = _load_or_compile(lowered, request, device, (inputs, outputs), graph)
        executable, key, from_disk = made
    executable.aliases = len(aliases)
    seconds = lowered_at - start, time.perf_counter() - lowered_at
    record = _record(graph, request, seconds, from_disk)
    if record is not None and key is not None:
        executable.origin = pjrt.Origin(key, inputs, outputs, record.shapes, record.nodes)
    tell(record, request.parts, executable, graph)
    if keep_text:
        _publish(graph, request, lowered, executable)
    return executable


@optional(None)
def _record(
    graph: Graph, request: Request, seconds: tuple[float, float], from_disk: bool
) -> metrics.CompileRecord:
    nodes = fx.calls(graph)
    shapes = tuple(describe(node.meta["val"]) for node in fx.placeholders(graph))
    where = str(first_location(graph))
    details = len(nodes), *seconds, from_disk, request.reason, where
    return metrics.CompileRecord(request.name, shapes, *details)


@optional(None)
def _publish(graph: Graph, request: Request, lowered: Lowered, executable: pjrt.Executable) -> None:
    texts = str(graph), lowered.torch_dialect, lowered.stablehlo, executable.optimized_hlo()
    metrics.publish_stages(metrics.Stages(request.name, *texts))


def lower(graph: Graph, context: Context, **details: Any) -> Lowered:
    """Run the lowering stage and `lower_graph`; what torch-mlir refuses, JAX rules lower alone.

    `graph` is edited.

    Raises:
        CompileError: torch-mlir refused the graph, and config().strict asks for an error.
    """
    pipeline.run(Stage.LOWERING, graph, context)
    try:
        return lower_graph(graph, context.target, **details)
    except CompileError as error:
        if config().strict:
            raise
        metrics.count("torch_mlir_refused")
        metrics.compile_log.warning(
            "torch-mlir refused a graph, which is lowered by JAX rules alone. This is a bug of "
            "xla_dynamo: please report it with this message. %s",
            error,
        )
        return lower_graph(graph, context.target, native=False, **details)


def _load_or_compile(
    lowered: Lowered,
    request: Request,
    device: pjrt.Where,
    signatures: tuple[pjrt.Signature, pjrt.Signature],
    graph: Graph,
) -> tuple[pjrt.Executable, str | None, bool]:
    """The executable, its key on disk if it is there, and whether it comes from there.

    Of several processes that want it at once, one compiles, and the others wait.
    """
    overrides = request.options.xla_overrides(pjrt.platform(device))
    preferred = ynnpack.preferred(graph, pjrt.platform(device))
    entry = _entry(lowered, request, device, {**preferred, **overrides})
    of_program = (device, *signatures, overrides, request.name)

    def compiled() -> pjrt.Executable:
        with compile_notice.shown(request, graph, pjrt.platform(device)):
            _try(lowered, request, device, overrides, graph)
            return pjrt.compile(lowered.module, *of_program, preferred)

    if entry is None:
        return compiled(), None, False
    disk, key = entry
    if (found := _loaded(disk, key, of_program)) is not None:
        return found, key, True
    with disk.turn(key, config().patience) as waited:
        if waited and (found := _loaded(disk, key, of_program)) is not None:
            return found, key, True
        executable = compiled()
        try:
            disk.put(key, executable.serialize())
        except Exception as error:
            # Not every platform and program can be serialised; the cache is only ever a saving.
            metrics.compile_log.info("an executable is not cached on disk: %s", error)
            return executable, None, False
    return executable, key, False


def _try(
    lowered: Lowered,
    request: Request,
    device: pjrt.Where,
    overrides: Mapping[str, Any],
    graph: Graph,
) -> None:
    """Survive the program, or raise: see `trial`. Programs over several devices are not tried."""
    if pjrt.platform(device) != trial.PLATFORM or isinstance(device, (tuple, Partitions)):
        return
    there = trial_process.topology_of(device)
    trial.survive(lowered, graph, there, request.options, overrides, request.name)


def _loaded(disk: cache.DiskCache, key: str, of_program: Sequence[Any]) -> pjrt.Executable | None:
    data = disk.get(key)
    try:
        return None if data is None else pjrt.deserialize(data, *of_program)
    except Exception as error:
        metrics.compile_log.info("a cached executable does not load, compiling: %s", error)
        return None


@optional(None)
def _entry(
    lowered: Lowered, request: Request, device: pjrt.Where, overrides: Mapping[str, Any]
) -> tuple[cache.DiskCache, str] | None:
    """The disk cache, and the program's key in it; None without a cache."""
    disk = cache.configured() if request.options.disk_cache else None
    if disk is None:
        return None
    key = cache.key_of(
        [lowered.canonical(), pjrt.describe(device), repr(sorted(overrides.items()))]
    )
    return disk, key


def _signature(node: Node) -> tuple[tuple[int, ...], np.dtype]:
    value = node.meta["val"]
    return tuple(value.shape), dtype_table.to_numpy(value.dtype)


def describe(value: torch.Tensor) -> str:
    """The type of a tensor as records have it: "float32[8, 3]"."""
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
