"""One static FX graph -> a callable that launches its executable on torch tensors.

Compiling happens here once; what is left for each call is: look up or alias the input arrays,
launch, wrap the outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, Node

from xla_dynamo import interrupts
from xla_dynamo.backend import metrics, pipeline
from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.lowering import Lowered, lower_graph
from xla_dynamo.backend.lowering import dtypes as dtype_table
from xla_dynamo.backend.lowering.source import first_location
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.passes.contract import Context, Stage, WayIn, target_of
from xla_dynamo.backend.runtime import buffers, cache, pjrt, resident
from xla_dynamo.config import config
from xla_dynamo.errors import CompileError

from . import output_plan


@dataclass(frozen=True)
class Request:
    """What is compiled, for whom: names for reports, and which arguments and outputs are special.

    name, reason: for the compile record.
    resident: argument positions whose tensors come again at every call.
    visible: number of leading outputs that the user sees: they get the strides eager would give.
    way_in: how the graph came here, which decides the passes that it gets.
    no_output_aliasing: whether outputs must not share memory with each other.
    """

    name: str
    reason: str
    resident: frozenset[int]
    visible: int
    options: Options
    way_in: WayIn
    no_output_aliasing: bool = False


def compile_launch(graph: Graph, request: Request) -> Callable[[list[Any]], list[Any]]:
    """Compile `graph` (it is edited) and return what runs it on a list of arguments.

    Raises:
        CompileError, UnsupportedOp, DeviceUnavailable.
    """
    placeholders = fx.placeholders(graph)
    home = resident.device_of(n.meta.get("val") for n in (*placeholders, *_nodes_of_results(graph)))
    if home is None:
        device = pjrt.device(request.options.platform or pjrt.default_platform())
        planned = output_plan.plan(
            graph, request.visible, request.visible, request.no_output_aliasing
        )
    else:  # such tensors have no strides of their own
        device = resident.RESIDENCIES[home.type].device(home)
        planned = output_plan.plan(graph, 0, request.visible, request.no_output_aliasing)
    edit.drop_unused(graph)
    used = [i for i, node in enumerate(placeholders) if node.users]
    for node in placeholders:
        if not node.users:
            graph.erase_node(node)
    executable = None
    if any(output.array is not None for output in planned):
        executable = compile_executable(graph, request, device)
    if home is not None:
        return ResidentLaunch(executable, home, used, planned).__call__
    host = all(node.meta["val"].device.type == "cpu" for node in fx.results(graph))
    return Launch(executable, device, used, request.resident, planned, host).__call__


class Launch:
    """The per-call work; everything that can be decided once is decided here."""

    def __init__(
        self,
        executable: pjrt.Executable | None,
        device: pjrt.Device,
        used: Sequence[int],
        resident: frozenset[int],
        planned: Sequence[output_plan.Output],
        host: bool,
    ) -> None:
        self._executable = executable
        self._device = device
        self._host = host
        self._slots = [buffers.Slot(device, i, i in resident) for i in used]
        self._outputs = planned
        arrays = [output for output in planned if output.array is not None]
        # The common case, all results distinct arrays in order, needs no assembly.
        self._plain = [o.array for o in planned] == list(range(len(arrays))) and not any(
            o.view for o in planned
        )

    def __call__(self, arguments: list[Any]) -> list[Any]:
        if self._executable is None:
            return [output.result(arguments, ()) for output in self._outputs]
        arrays = [slot.array(arguments[slot.position]) for slot in self._slots]
        tensors = pjrt.to_tensors(self._executable(*arrays), self._device, self._host)
        if self._plain:
            return tensors
        return [output.result(arguments, tensors) for output in self._outputs]


class ResidentLaunch:
    """The per-call work for tensors that live on the device: nothing is copied."""

    def __init__(
        self,
        executable: pjrt.Executable | None,
        home: torch.device,
        used: Sequence[int],
        planned: Sequence[output_plan.Output],
    ) -> None:
        self._executable = executable
        self._home = home
        self._used = used
        self._outputs = planned
        self._arrays = resident.RESIDENCIES[home.type].arrays
        self._tensors = resident.RESIDENCIES[home.type].tensors

    def __call__(self, arguments: list[Any]) -> list[Any]:
        if self._executable is None:
            return [output.result(arguments, ()) for output in self._outputs]
        arrays = self._arrays([arguments[i] for i in self._used], self._home)
        tensors = self._tensors(self._executable(*arrays), self._home)
        return [output.result(arguments, tensors) for output in self._outputs]


def _nodes_of_results(graph: Graph) -> list[Node]:
    return [result for result in fx.results(graph) if isinstance(result, Node)]


@interrupts.deferred(once=True)
def compile_executable(
    graph: Graph,
    request: Request,
    device: pjrt.Device,
    aliases: Mapping[int, int] = MappingProxyType({}),
) -> pjrt.Executable:
    """Lower and compile a graph whose results are distinct computed tensors (it is edited).

    `aliases`: argument position -> position of the result that may take over its memory.
    """
    options = request.options
    context = Context(request.name, request.way_in, target_of(options, device.platform))
    keep_text = metrics.wants_stages()
    start = time.perf_counter()
    lowered = lower(graph, context, keep_text=keep_text, aliases=aliases)
    lowered_at = time.perf_counter()
    executable, from_disk = _load_or_compile(graph, lowered, request, device)
    executable.aliases = len(aliases)
    done = time.perf_counter()
    nodes = fx.calls(graph)
    shapes = tuple(_describe(node.meta["val"]) for node in fx.placeholders(graph))
    metrics.record_compile(
        metrics.CompileRecord(
            request.name,
            shapes,
            len(nodes),
            lowered_at - start,
            done - lowered_at,
            from_disk,
            request.reason,
            str(first_location(graph)),
        )
    )
    if keep_text:
        metrics.publish_stages(
            metrics.Stages(
                request.name,
                str(graph),
                lowered.torch_dialect,
                lowered.stablehlo,
                executable.optimized_hlo(),
            )
        )
    return executable


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
    graph: Graph, lowered: Lowered, request: Request, device: pjrt.Device
) -> tuple[pjrt.Executable, bool]:
    inputs = [_signature(node) for node in fx.placeholders(graph)]
    outputs = [_signature(node) for node in fx.results(graph)]
    overrides = request.options.xla_overrides(device.platform)
    folder = config().cache_dir if request.options.disk_cache else None
    if folder is None:
        return pjrt.compile(lowered.module, device, inputs, outputs, overrides), False
    disk = cache.DiskCache(folder, config().cache_bytes)
    key = cache.key_of(
        [lowered.canonical(), pjrt.describe(device), repr(sorted(overrides.items()))]
    )
    data = disk.get(key)
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


def _signature(node: Node) -> tuple[tuple[int, ...], np.dtype]:
    value = node.meta["val"]
    return tuple(value.shape), dtype_table.to_numpy(value.dtype)


def _describe(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
