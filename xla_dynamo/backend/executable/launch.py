"""Compile a static FX graph to a callable on torch tensors.

A call looks up or aliases the input arrays, launches the executable, and wraps the outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend import metrics
from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.graph.text import text_of
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.runtime import buffers, gpu_order, job, pjrt, resident, transfers
from xla_dynamo.backend.runtime.partitions import Partitions
from xla_dynamo.backend.runtime.platforms import default_platform

from . import (
    cores,
    host_launch,
    in_place,
    input_layout,
    joint,
    merged_results,
    output_plan,
    partitioned,
    saved_outputs,
    updates,
)
from .compile import compile_executable
from .host_launch import HostLaunch
from .request import Request, without_host_kernels


def compile_launch(graph: Graph, request: Request) -> Callable[[list[Any]], Sequence[Any]]:
    """Compile `graph` (it is edited) and return what runs it on a list of arguments.

    Raises:
        CompileError, UnsupportedOp, DeviceUnavailable.
    """
    placeholders = fx.placeholders(graph)
    device, home = device_of(graph, request.options)
    strided = request.visible if home is None else 0  # such tensors have no strides of their own
    is_part = request.parts is not None
    alone = request.alone(len(fx.results(graph)))
    planned = output_plan.plan(graph, strided, request.visible, alone, is_part)
    edit.drop_unused(graph)
    used = [i for i, node in enumerate(placeholders) if node.users]
    for node in placeholders:
        if not node.users:
            graph.erase_node(node)
    if all(output.array is None for output in planned):
        return host_launch.Launched(HostLaunch(planned=tuple(planned)), None, device)
    collectives = joint.collectives_of(graph)
    aliases: dict[int, int] = {}
    if home is not None or isinstance(device, Partitions):
        aliases = updates.aliases(graph, planned, request.updates, used)
    if isinstance(device, Partitions):
        alone = without_host_kernels(request)
        make: Any = functools.partial(
            partitioned.ByShardings,
            graph,
            device,
            lambda g, on: compile_executable(g, alone, on, aliases),
            aliases,
        )
    elif collectives:
        every = functools.partial(compile_executable, graph, request, aliases=aliases)
        text = text_of(graph)
        if home is not None:
            # That of each replica has the name of its own device.
            text = text.replace(repr(home), repr(torch.device(home.type)))
            told = home, collectives, text, every, len(aliases)
            make = functools.partial(resident.RESIDENCIES[home.type].of_replicas, *told)
        else:
            of = job.of_collectives()
            device = of.client.local_devices()[0]
            make = functools.partial(joint.JointProgram, of, collectives, every, text)
    else:
        make = functools.partial(compile_executable, graph, request, device, aliases)
    if home is not None:
        there, launch = home, resident.RESIDENCIES[home.type].launch
        executable = resident.RESIDENCIES[home.type].compiled(make, there)

        def run(given: list[Any]) -> Sequence[torch.Tensor]:
            return launch(executable, [given[i] for i in used], there, aliases)

        return host_launch.planned(planned, run)
    on_gpu = [i for i, node in zip(used, fx.placeholders(graph), strict=True) if _on_gpu(node)]
    orders: dict[int, input_layout.Order] = {}
    if not (transfers.is_apart(device) or collectives):
        written = {place for place, i in enumerate(used) if i in request.updates.values()}
        orders = input_layout.take_as_they_lie(graph, written)
        planned = merged_results.merge(graph, planned, request.updates)
    homes = _devices(fx.results(graph))
    if transfers.is_apart(device) and not on_gpu and all(home.type == "cpu" for home in homes):
        may_stay: dict[int | None, int] = {
            p: i for i, p in enumerate(used) if p not in request.resident
        }
        nodes = fx.results(graph), fx.placeholders(graph)
        planned, returned = saved_outputs.choose(planned, request.visible, *nodes, may_stay)
        if not collectives:
            given_up = returned.given_up(fx.placeholders(graph), used, request)
            aliases = updates.taken_over(graph, given_up)
            make = functools.partial(compile_executable, graph, request, device, aliases)
        slots = buffers.slots(device, used, request.resident, given_up=aliases)
        return host_launch.planned(planned, _apart(make(), slots, device, returned))
    slots = buffers.slots(device, used, request.resident, on_gpu, orders)
    if in_place.is_possible(request, device) and not collectives:
        aliases = updates.aliases(graph, planned, request.updates, used)
        chosen = in_place.choose(graph, planned, aliases, used)
        if chosen is not None:
            planned, stores = chosen
            executable = compile_executable(graph, in_place.with_little_memory(request), device)
            addresses = in_place.Addresses(stores, used, device)
            return host_launch.planned(
                planned, _storing(executable, slots, device, stores, addresses)
            )
    elements = 0 if transfers.is_apart(device) else cores.elements(graph)
    executable = make()
    if request.parts is not None and _ends_in_call(executable, homes):
        told = tuple(used), tuple(request.resident), orders, tuple(planned), elements
        return host_launch.Launched(HostLaunch(*told), executable, device)
    run_all = _on_tensors(executable, slots, device, homes, elements)
    return host_launch.planned(planned, run_all)


def device_of(graph: Graph, options: Options) -> tuple[Any, torch.device | None]:
    """Where a graph runs, and the device of its tensors, if they are arrays there."""
    results = [r for r in fx.results(graph) if isinstance(r, Node)]
    nodes = (*fx.placeholders(graph), *results)
    home = resident.device_of(node.meta.get("val") for node in nodes)
    if home is not None:
        return resident.RESIDENCIES[home.type].device(home), home
    platform = options.platform or default_platform()
    return pjrt.device(platform, gpu_order.ordinal(platform, _devices(nodes))), None


def _storing(
    executable: pjrt.Executable,
    slots: Sequence[buffers.Slot],
    device: pjrt.Device,
    stores: in_place.Stores,
    addresses: in_place.Addresses,
) -> Callable[[list[Any]], Sequence[torch.Tensor]]:
    """Run a program on CPU tensors that writes into some of them."""

    def run(given: list[Any]) -> Sequence[torch.Tensor]:
        where, written = addresses.of(given)
        results = executable(*buffers.arrays(slots, given), where)
        transfers.wait(results)
        addresses.finish(given, written)
        return transfers.to_tensors(results[: stores.results], device, host=True)

    return run


def _apart(
    executable: pjrt.Executable,
    slots: Sequence[buffers.Slot],
    device: pjrt.Device,
    returned: saved_outputs.Returned,
) -> Callable[[list[Any]], Sequence[torch.Tensor]]:
    """Run a program on CPU tensors, on a device that has memory of its own."""

    def run(given: list[Any]) -> Sequence[torch.Tensor]:
        gpu_order.drain(device)
        arguments = buffers.arrays(slots, given)
        return returned.tensors(arguments, executable(*arguments), device)

    return run


def _on_tensors(
    executable: pjrt.Executable,
    slots: Sequence[buffers.Slot],
    device: pjrt.Device,
    homes: Sequence[torch.device],
    elements: int,
) -> Callable[[list[Any]], Sequence[torch.Tensor]]:
    """Run a program on torch tensors; its results go to `homes`. elements: see cores."""
    host = all(home.type == "cpu" for home in homes)
    if device.platform == "gpu":
        return _ordered(executable, slots, device, homes)
    program = cores.alone(executable, elements)
    if _ends_in_call(executable, homes):
        return host_launch.on_tensors(program, slots)

    def run(given: list[Any]) -> Sequence[torch.Tensor]:
        arrays = program(*buffers.arrays(slots, given))
        return transfers.to_tensors(arrays, device, host)

    if host:
        return run
    _warn_of_copies(homes, device)
    return lambda given: [t.to(home) for t, home in zip(run(given), homes, strict=True)]


def _ends_in_call(executable: Any, homes: Sequence[torch.device]) -> bool:
    """Whether a program whose results are CPU tensors is done when its launch returns."""
    host = all(home.type == "cpu" for home in homes)
    return host and isinstance(executable, pjrt.Executable) and pjrt.ends_in_call(executable)


def _ordered(
    executable: pjrt.Executable,
    slots: Sequence[buffers.Slot],
    device: pjrt.Device,
    homes: Sequence[torch.device],
) -> Callable[[list[Any]], Sequence[torch.Tensor]]:
    """Run a program on a GPU, after PyTorch's work there; results go to `homes`."""
    host = all(home.type == "cpu" for home in homes)
    last = [i for i, slot in enumerate(slots) if isinstance(slot, buffers.HandedOver)]
    others = [slot for slot in slots if not isinstance(slot, buffers.HandedOver)]
    moves = len({home.type for home in homes}) > 1

    def run(given: list[Any]) -> Sequence[torch.Tensor]:
        if not last:
            gpu_order.drain(device)
        arguments = buffers.arrays(others, given)
        for i in last:  # now that PyTorch has made what the others needed
            arguments.insert(i, slots[i].array(given[slots[i].position]))
        tensors = transfers.to_tensors(executable(*arguments), device, host)
        return [t.to(home) for t, home in zip(tensors, homes, strict=True)] if moves else tensors

    return run


def _devices(nodes: Iterable[Node]) -> list[torch.device]:
    values = [node.meta.get("val") for node in nodes]
    return [value.device for value in values if isinstance(value, torch.Tensor)]


def _on_gpu(node: Node) -> bool:
    value = node.meta["val"]
    return value.device.type == "cuda" and value.numel() > 0


def _warn_of_copies(homes: Sequence[torch.device], device: pjrt.Device) -> None:
    there = next(home for home in homes if home.type != "cpu")
    why = (
        f"Tensors are on {there}, and programs run on {device.platform}: each call copies there "
        "and back."
    )
    remedy = (
        f"Install the PJRT plug-in of {there.type} (jax[cuda13] for CUDA), or move the "
        "tensors to the CPU."
    )
    metrics.record_fallback(metrics.FallbackRecord(f"programs for {there}", "", why, remedy))
    key = ("copies", there.type, device.platform)
    metrics.warn_once(key, f"{why} {remedy}", metrics.FallbackWarning)
