"""Compile a static FX graph to a callable on device arrays, for the lazy device.

No torch tensor is made on the way unless an op has to run on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend import pipeline
from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.lowering import unsupported
from xla_dynamo.backend.lowering.nodes import op_of
from xla_dynamo.backend.passes.contract import Stage
from xla_dynamo.backend.passes.padding.plan import PaddedGraph, Plan
from xla_dynamo.backend.passes.padding.sizes import Refused
from xla_dynamo.backend.runtime import pjrt, transfers
from xla_dynamo.backend.runtime.partitions import Partitions
from xla_dynamo.errors import CompileError, UnsupportedOp

from . import array_parts, manual_values, partition, partitioned, segments, updates
from .compile import compile_executable
from .request import Request, warn_of_eager, without_host_kernels

Run = Callable[[list[Any]], Sequence[Any]]
aten = torch.ops.aten


def compile_arrays(
    graph: Graph,
    request: Request,
    device: pjrt.Where,
    donated: Collection[int],
    refused_op: Callable[[Any], None],
) -> Run:
    """Compile `graph` (it is edited) for `device`; it must use all its arguments.

    device: several are of replicas, none of which may run ops on the CPU: all have one program.
    donated: positions of arguments that are not used afterwards: results take over their memory.
    refused_op: called, at each run, with each op that runs on the CPU.
    """
    if isinstance(device, tuple):
        request = replace(request, options=replace(request.options, fallback="error"))
    if isinstance(device, Partitions):
        request = without_host_kernels(request)
    context = request.context(pjrt.platform(device))
    pipeline.run(Stage.JOINT, graph, context)
    pipeline.run(Stage.STATIC, graph, context)
    refused = context.lifted.unsupported
    if refused:
        unsupported.report(refused, request.options)
        return _in_parts(graph, refused, request, device, refused_op)
    _make_distinct(graph)
    manual = manual_values.grids(graph, device) if isinstance(device, Partitions) else {}
    original = fx.copy(graph)
    try:
        if not isinstance(device, tuple | Partitions):
            kernels = array_parts.kernels_of(graph, request, device)
            if kernels:
                return array_parts.compile_in_turn(graph, request, device, donated, kernels)
        if not isinstance(device, Partitions):
            return compile_executable(graph, request, device, updates.taken_over(graph, donated))
        results = fx.results(graph)
        aliases = {
            argument: result
            for argument, result in updates.taken_over(graph, donated, updates_only=True).items()
            if (results[result] in manual) == (device.inputs[argument].role == "manual")
        }
        device = partitioned.with_results(graph, device, aliases, manual)
        partitioned.gather(graph, device)
        manual_values.separate(graph, manual)
        partitioned.pad(graph, device)
        return compile_executable(graph, request, device, aliases)
    except (CompileError, UnsupportedOp) as error:
        if request.options.fallback == "error" or "RESOURCE_EXHAUSTED" in str(error):
            raise
        warn_of_eager(request, error)
        return _in_parts(original, fx.calls(original), request, device, refused_op)


def prepare_padded(graph: Graph, request: Request, device: pjrt.Device) -> None:
    """What `compile_padded` needs done before, once, to a graph whose sizes are symbols."""
    pipeline.run(Stage.JOINT, graph, request.context(pjrt.platform(device)))
    _make_distinct(graph)


def compile_padded(
    graph: Graph, request: Request, device: pjrt.Device, donated: Collection[int], plan: Plan
) -> tuple[Run, PaddedGraph]:
    """Compile a prepared graph (it is edited), whose sizes are symbols, for those of buckets.

    What runs it takes its arguments, and the numbers of the padded graph after those.

    Raises:
        Refused: an op has no padded form, or would run on the CPU.
    """
    context = replace(request.context(pjrt.platform(device)), padding=plan)
    pipeline.run(Stage.STATIC, graph, context)
    padded = context.lifted.padded
    assert padded is not None
    for node in context.lifted.unsupported:
        raise Refused.at(node, "it runs on the CPU", node.meta.get("padded", frozenset()))
    _make_distinct(graph)
    given = fx.placeholders(graph)
    used = [position for position, node in enumerate(given) if node.users]
    for node in given:
        if not node.users:
            graph.erase_node(node)
    given_up = {i for i, position in enumerate(used) if position in donated}
    executable = compile_executable(graph, request, device, updates.taken_over(graph, given_up))
    return Padded(executable, used), padded


class Padded:
    """An executable that takes some of what it is given, in a list."""

    def __init__(self, executable: pjrt.Executable, used: Sequence[int]) -> None:
        self.executable, self._used = executable, used

    def __call__(self, arrays: list[Any]) -> Sequence[Any]:
        return self.executable(*[arrays[position] for position in self._used])


def _in_parts(
    graph: Graph,
    refused: Collection[Node],
    request: Request,
    device: pjrt.Device | Partitions,
    refused_op: Callable[[Any], None],
) -> Run:
    """Split at `refused`: those run on CPU tensors, the parts between them on the device."""

    def compile_segment(segment: partition.Segment) -> Run:
        _make_distinct(segment.graph)
        part = replace(request, name=f"{request.name} part {segment.index}")
        executable: Any
        if isinstance(device, Partitions):
            executable = partitioned.ByShardings(
                segment.graph, device, lambda g, on: compile_executable(g, part, on)
            )
        else:
            executable = compile_executable(segment.graph, part, device)
        return lambda values: executable(*[_to_array(value, device) for value in values])

    if isinstance(device, Partitions):
        manual_values.refuse(manual_values.grids(graph, device), refused)
        partitioned.refuse_padding(graph, device, refused)
    steps = partition.split(graph, refused)
    ops = [op_of(node) for node in refused]
    run_steps = segments.build(graph, steps, compile_segment, convert=_to_tensor)

    def run(arrays: list[Any]) -> Sequence[Any]:
        for op in ops:
            refused_op(op)
        return [_to_array(value, device) for value in run_steps(arrays)]

    return run


def _to_array(value: Any, device: pjrt.Device | Partitions) -> Any:
    return transfers.upload(value, device) if isinstance(value, torch.Tensor) else value


def _to_tensor(value: Any) -> Any:
    """An array as a CPU tensor; CPU tensors, and tuples that an op returned, stay."""
    if isinstance(value, torch.Tensor) or not hasattr(value, "dtype"):
        return value
    return transfers.download(value)


def _make_distinct(graph: Graph) -> None:
    """Give every result memory of its own: arguments and duplicate results are copied."""
    results: list[Any] = []
    for result in fx.results(graph):
        if result.op == "placeholder" or result in results:
            value = result.meta["val"]
            with graph.inserting_before(graph.output_node()):
                op = aten.clone.default
                result = edit.insert(graph, op, (result,), {}, like=result, value=value)
        results.append(result)
    graph.output_node().args = (tuple(results),)
