"""One static FX graph -> a callable that launches its executable on torch tensors.

Compiling happens here once; what is left for each call is: look up or alias the input arrays,
launch, wrap the outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, Node

from xla_dynamo.config import config
from xla_dynamo.errors import CompileError

from . import fx_graph, metrics
from .lowering import Lowered, Target, lower_graph
from .lowering import dtypes as dtype_table
from .lowering.source import first_location
from .options import Options
from .runtime import buffers, cache, pjrt

aten = torch.ops.aten


@dataclass(frozen=True)
class Request:
    """What is compiled, for whom: names for reports, and which arguments and outputs are special.

    name, reason: for the compile record.
    resident: argument positions whose tensors come again at every call.
    visible: number of leading outputs that the user sees: they get the strides eager would give.
    """

    name: str
    reason: str
    resident: frozenset[int]
    visible: int
    options: Options


@dataclass(frozen=True)
class _Output:
    """Where a result comes from: an array, an argument, or a constant."""

    array: int | None = None
    argument: int | None = None
    constant: Any = None
    permutation: tuple[int, ...] | None = None


def compile_launch(graph: Graph, request: Request) -> Callable[[list[Any]], list[Any]]:
    """Compile `graph` (it is edited) and return what runs it on a list of arguments.

    Raises:
        CompileError, UnsupportedOp, DeviceUnavailable.
    """
    device = pjrt.device(request.options.platform or pjrt.default_platform())
    placeholders = fx_graph.placeholders(graph)
    outputs = _plan_outputs(graph, request, placeholders)
    graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))
    used = [i for i, node in enumerate(placeholders) if node.users]
    for node in placeholders:
        if not node.users:
            graph.erase_node(node)
    executable = None
    if any(output.array is not None for output in outputs):
        executable = _compile(graph, request, device)
    host = all(node.meta["val"].device.type == "cpu" for node in fx_graph.results(graph))
    return Launch(executable, device, used, request.resident, outputs, host).__call__


class Launch:
    """The per-call work; everything that can be decided once is decided here."""

    def __init__(
        self,
        executable: pjrt.Executable | None,
        device: pjrt.Device,
        used: Sequence[int],
        resident: frozenset[int],
        outputs: Sequence[_Output],
        host: bool,
    ) -> None:
        self._executable = executable
        self._device = device
        self._host = host
        self._slots = [buffers.Slot(device, i, i in resident) for i in used]
        self._outputs = outputs
        arrays = [output for output in outputs if output.array is not None]
        # The common case, all results distinct arrays in order, needs no assembly.
        self._plain = [o.array for o in outputs] == list(range(len(arrays))) and not any(
            o.permutation for o in outputs
        )

    def __call__(self, arguments: list[Any]) -> list[Any]:
        if self._executable is None:
            return [self._result(output, arguments, ()) for output in self._outputs]
        arrays = [slot.array(arguments[slot.position]) for slot in self._slots]
        tensors = pjrt.to_tensors(self._executable(*arrays), self._device, self._host)
        if self._plain:
            return tensors
        return [self._result(output, arguments, tensors) for output in self._outputs]

    @staticmethod
    def _result(output: _Output, arguments: list[Any], tensors: Sequence[torch.Tensor]) -> Any:
        if output.array is not None:
            tensor = tensors[output.array]
            return tensor.permute(output.permutation) if output.permutation else tensor
        return output.constant if output.argument is None else arguments[output.argument]


def _plan_outputs(graph: Graph, request: Request, placeholders: list[Node]) -> list[_Output]:
    """Decide where each result comes from; leave only distinct computed tensors as outputs."""
    node = graph.output_node()
    computed: dict[tuple[Node, tuple[int, ...] | None], int] = {}
    planned: list[_Output] = []
    arrays: list[Node] = []
    for index, result in enumerate(fx_graph.results(graph)):
        if not isinstance(result, Node):
            planned.append(_Output(constant=result))
        elif result.op == "placeholder":
            planned.append(_Output(argument=placeholders.index(result)))
        else:
            physical = _physical_order(result) if index < request.visible else None
            key = (result, physical)
            if key not in computed:
                computed[key] = len(arrays)
                arrays.append(_permuted(graph, node, result, physical) if physical else result)
            inverse = tuple(np.argsort(physical).tolist()) if physical else None
            planned.append(_Output(array=computed[key], permutation=inverse))
    node.args = (tuple(arrays),)
    return planned


def _physical_order(node: Node) -> tuple[int, ...] | None:
    """The dimensions from outermost to innermost in memory, if eager's result is a dense tensor
    in another order than row-major (channels_last, a transposed product)."""
    value = node.meta["val"]
    if value.is_contiguous() or value.numel() == 0:
        return None
    order = sorted(range(value.dim()), key=lambda d: (-value.stride(d), value.shape[d] == 1, d))
    expected = 1
    for dimension in reversed(order):
        if value.shape[dimension] != 1 and value.stride(dimension) != expected:
            return None
        expected *= value.shape[dimension]
    return None if order == sorted(order) else tuple(order)


def _permuted(graph: Graph, before: Node, node: Node, order: tuple[int, ...]) -> Node:
    with graph.inserting_before(before):
        permuted = graph.call_function(aten.permute.default, (node, list(order)))
    permuted.meta = {"stack_trace": node.meta.get("stack_trace")}
    value = node.meta["val"]
    with value.fake_mode:
        shape = [value.shape[d] for d in order]
        permuted.meta["val"] = torch.empty(shape, dtype=value.dtype)
    return permuted


def _compile(graph: Graph, request: Request, device: pjrt.Device) -> pjrt.Executable:
    options = request.options
    target = Target(device.platform, options.matmul_precision)
    keep_text = metrics.wants_stages()
    start = time.perf_counter()
    lowered = lower(graph, target, keep_text=keep_text)
    lowered_at = time.perf_counter()
    executable, from_disk = _load_or_compile(graph, lowered, request, device)
    done = time.perf_counter()
    nodes = fx_graph.calls(graph)
    shapes = tuple(_describe(node.meta["val"]) for node in fx_graph.placeholders(graph))
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


def lower(graph: Graph, target: Target, **details: Any) -> Lowered:
    """`lower_graph`, and if torch-mlir refuses the mix of ops, the JAX rules take all of them."""
    try:
        return lower_graph(graph, target, **details)
    except CompileError as error:
        metrics.count("torch_mlir_refused")
        metrics.compile_log.info("torch-mlir refused a graph, JAX rules take it: %s", error)
        return lower_graph(graph, target, native=False, **details)


def _load_or_compile(
    graph: Graph, lowered: Lowered, request: Request, device: pjrt.Device
) -> tuple[pjrt.Executable, bool]:
    inputs = [_signature(node) for node in fx_graph.placeholders(graph)]
    outputs = [_signature(node) for node in fx_graph.results(graph)]
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
        return pjrt.deserialize(data, device, inputs, outputs, overrides), True
    executable = pjrt.compile(lowered.module, device, inputs, outputs, overrides)
    disk.put(key, executable.serialize())
    return executable, False


def _signature(node: Node) -> tuple[tuple[int, ...], np.dtype]:
    value = node.meta["val"]
    return tuple(value.shape), dtype_table.to_numpy(value.dtype)


def _describe(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
