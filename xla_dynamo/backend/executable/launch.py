"""Compile a static FX graph to a callable on torch tensors.

A call looks up or aliases the input arrays, launches the executable, and wraps the outputs.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, Node

from xla_dynamo import interrupts
from xla_dynamo.backend import metrics, pipeline
from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.lowering import dtypes as dtype_table
from xla_dynamo.backend.lowering.lower import Lowered, lower_graph
from xla_dynamo.backend.lowering.source import first_location
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.passes.contract import Context, Stage, WayIn, target_of
from xla_dynamo.backend.passes.padding.plan import Agreement
from xla_dynamo.backend.runtime import buffers, cache, gpu_order, job, pjrt, resident
from xla_dynamo.backend.runtime.partitions import Partitions
from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.bookkeeping import optional
from xla_dynamo.config import config
from xla_dynamo.errors import CompileError

from . import joint, output_plan, partitioned, precision_notice


@dataclass(frozen=True)
class Request:
    """How a graph is compiled, and which of its arguments and outputs are special.

    name, reason: for the compile record.
    resident: argument positions whose tensors come again at every call.
    visible: number of leading outputs that the user sees: they get the strides eager would give.
    way_in: how the graph came here, which decides the passes that it gets.
    no_output_aliasing: whether outputs must not share memory with each other.
    capture: one object for graphs that are recompiled for the same reasons.
    results: the names that backward knows its saved values by.
    """

    name: str
    reason: str
    resident: frozenset[int]
    visible: int
    options: Options
    way_in: WayIn
    no_output_aliasing: bool = False
    capture: Agreement = field(default_factory=Agreement, compare=False)
    results: tuple[str, ...] = ()

    def context(self, platform: str | None = None) -> Context:
        """What passes are told; default platform: the one that the options or the process name."""
        platform = platform or self.options.platform or default_platform()
        return Context(self.name, self.way_in, target_of(self.options, platform))


def without_host_kernels(request: Request) -> Request:
    """`request` for a program that XLA partitions: it cannot partition kernels of PyTorch's."""
    return replace(request, options=replace(request.options, cpu_kernels="xla"))


def compile_launch(graph: Graph, request: Request) -> Callable[[list[Any]], Sequence[Any]]:
    """Compile `graph` (it is edited) and return what runs it on a list of arguments.

    Raises:
        CompileError, UnsupportedOp, DeviceUnavailable.
    """
    placeholders = fx.placeholders(graph)
    nodes = (*placeholders, *(r for r in fx.results(graph) if isinstance(r, Node)))
    home = resident.device_of(node.meta.get("val") for node in nodes)
    if home is None:
        platform = request.options.platform or default_platform()
        device = pjrt.device(platform, gpu_order.ordinal(platform, _devices(nodes)))
        strided = request.visible
    else:
        device = resident.RESIDENCIES[home.type].device(home)
        strided = 0  # such tensors have no strides of their own
    planned = output_plan.plan(graph, strided, request.visible, request.no_output_aliasing)
    edit.drop_unused(graph)
    used = [i for i, node in enumerate(placeholders) if node.users]
    for node in placeholders:
        if not node.users:
            graph.erase_node(node)
    if all(output.array is None for output in planned):
        return lambda arguments: [output.result(arguments, ()) for output in planned]
    make: Any = functools.partial(compile_executable, graph, request, device)
    collectives = joint.collectives_of(graph)
    if isinstance(device, Partitions):
        alone = without_host_kernels(request)
        make = functools.partial(
            partitioned.ByShardings, graph, device, lambda g, on: compile_executable(g, alone, on)
        )
    elif collectives:
        of = job.of_collectives()
        device = of.client.local_devices()[0]
        whole = functools.partial(compile_executable, graph, request)
        make = functools.partial(joint.JointProgram, of, collectives, whole)
    if home is not None:
        there, launch = home, resident.RESIDENCIES[home.type].launch
        executable = resident.RESIDENCIES[home.type].compiled(make, there)
        return _launch(planned, lambda given: launch(executable, [given[i] for i in used], there))
    on_gpu = [i for i, node in zip(used, fx.placeholders(graph), strict=True) if _on_gpu(node)]
    slots = buffers.slots(device, used, request.resident, on_gpu)
    homes = _devices(fx.results(graph))
    return _launch(planned, _on_tensors(make(), slots, device, homes))


def _on_tensors(
    executable: pjrt.Executable,
    slots: Sequence[buffers.Slot],
    device: pjrt.Device,
    homes: Sequence[torch.device],
) -> Callable[[list[Any]], Sequence[torch.Tensor]]:
    """Run a program on torch tensors; its results go to `homes`."""
    host = all(home.type == "cpu" for home in homes)

    def run(given: list[Any]) -> Sequence[torch.Tensor]:
        arrays = executable(*[slot.array(given[slot.position]) for slot in slots])
        return pjrt.to_tensors(arrays, device, host)

    if device.platform == "gpu":
        return _ordered(run, slots, device, homes)
    if host:
        return run
    _warn_of_copies(homes, device)
    return lambda given: [t.to(home) for t, home in zip(run(given), homes, strict=True)]


def _ordered(
    run: Callable[[list[Any]], Sequence[torch.Tensor]],
    slots: Sequence[buffers.Slot],
    device: pjrt.Device,
    homes: Sequence[torch.device],
) -> Callable[[list[Any]], Sequence[torch.Tensor]]:
    """`run` on a GPU, after PyTorch's work there; results go to `homes`."""
    waits = any(isinstance(slot, buffers.HandedOver) for slot in slots)
    moves = len({home.type for home in homes}) > 1

    def run_in_order(given: list[Any]) -> Sequence[torch.Tensor]:
        if not waits:
            gpu_order.drain(device)
        tensors = run(given)
        return [t.to(home) for t, home in zip(tensors, homes, strict=True)] if moves else tensors

    return run if waits and not moves else run_in_order


def _devices(nodes: Iterable[Node]) -> list[torch.device]:
    values = [node.meta.get("val") for node in nodes]
    return [value.device for value in values if isinstance(value, torch.Tensor)]


def _on_gpu(node: Node) -> bool:
    value = node.meta["val"]
    return value.device.type == "cuda" and value.numel() > 0


def _warn_of_copies(homes: Sequence[torch.device], device: pjrt.Device) -> None:
    there = next(home for home in homes if home.type != "cpu")
    metrics.warn_once(
        ("copies", there.type, device.platform),
        f"Tensors are on {there}, and programs run on {device.platform}: each call copies there "
        f"and back. Install the PJRT plug-in of {there.type} (jax[cuda13] for CUDA), or move the "
        "tensors to the CPU.",
        metrics.FallbackWarning,
    )


def _launch(
    planned: Sequence[output_plan.Output], run: Callable[[list[Any]], Sequence[torch.Tensor]]
) -> Callable[[list[Any]], Sequence[Any]]:
    """The call path. The common case, all results distinct arrays in order, needs no assembly."""
    arrays = [output.array for output in planned]
    is_plain = arrays == list(range(len(arrays))) and not any(o.view or o.view_ops for o in planned)
    if is_plain:
        return run

    def launch(arguments: list[Any]) -> list[Any]:
        tensors = run(arguments)
        return [output.result(arguments, tensors) for output in planned]

    return launch


def warn_of_eager(request: Request, error: Exception) -> None:
    """Warn that a whole graph runs on the CPU, because a compiler refused it."""
    metrics.warn_once(
        ("graph", str(error)),
        f"{request.name} runs on the CPU in eager PyTorch: {error}",
        metrics.FallbackWarning,
    )


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
    context = request.context(pjrt.platform(device))
    keep_text = metrics.wants_stages()
    start = time.perf_counter()
    shardings = partitioned.attributes(device)
    precision_notice.tell(graph, context)
    lowered = lower(graph, context, keep_text=keep_text, aliases=aliases, shardings=shardings)
    lowered_at = time.perf_counter()
    executable, from_disk = _load_or_compile(graph, lowered, request, device)
    executable.aliases = len(aliases)
    seconds = lowered_at - start, time.perf_counter() - lowered_at
    _record(graph, request, seconds, from_disk)
    if keep_text:
        _publish(graph, request, lowered, executable)
    return executable


@optional(None)
def _record(graph: Graph, request: Request, seconds: tuple[float, float], from_disk: bool) -> None:
    nodes = fx.calls(graph)
    shapes = tuple(_describe(node.meta["val"]) for node in fx.placeholders(graph))
    where = str(first_location(graph))
    metrics.record_compile(
        metrics.CompileRecord(
            request.name, shapes, len(nodes), *seconds, from_disk, request.reason, where
        )
    )


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
    graph: Graph, lowered: Lowered, request: Request, device: pjrt.Where
) -> tuple[pjrt.Executable, bool]:
    inputs = [_signature(node) for node in fx.placeholders(graph)]
    outputs = [_signature(node) for node in fx.results(graph)]
    overrides = request.options.xla_overrides(pjrt.platform(device))
    entry = _entry(lowered, request, device, overrides)
    if entry is None:
        return pjrt.compile(lowered.module, device, inputs, outputs, overrides), False
    disk, key, data = entry
    if data is not None:
        try:
            return pjrt.deserialize(data, device, inputs, outputs, overrides), True
        except Exception as error:
            metrics.compile_log.info("a cached executable does not load, compiling: %s", error)
    executable = pjrt.compile(lowered.module, device, inputs, outputs, overrides)
    try:
        disk.put(key, executable.serialize())
    except Exception as error:
        # Not every platform and program can be serialised; the cache is only ever a saving.
        metrics.compile_log.info("an executable is not cached on disk: %s", error)
    return executable, False


@optional(None)
def _entry(
    lowered: Lowered, request: Request, device: pjrt.Where, overrides: Mapping[str, Any]
) -> tuple[cache.DiskCache, str, bytes | None] | None:
    """The disk cache, the program's key in it, and what is stored there; None without a cache."""
    folder = config().cache_dir if request.options.disk_cache else None
    if folder is None:
        return None
    disk = cache.DiskCache(folder, config().cache_bytes)
    key = cache.key_of(
        [lowered.canonical(), pjrt.describe(device), repr(sorted(overrides.items()))]
    )
    return disk, key, disk.get(key)


def _signature(node: Node) -> tuple[tuple[int, ...], np.dtype]:
    value = node.meta["val"]
    return tuple(value.shape), dtype_table.to_numpy(value.dtype)


def _describe(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
