"""PyTorch's kernels of a graph that its caller's thread runs, between programs of XLA:CPU.

Within a program (`runtime.host_kernels`) they run in threads of XLA's. OpenMP starts a team for
each of those; with more threads than cores libgomp no longer lets waiting ones spin, and from then
on every kernel of the process, eager PyTorch's as well, takes a quarter longer (ResNet-18 on two
cores: an eager step 62 ms before, 80 after). Results have to be copied there, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import error_origin, fx, kernel_calls
from xla_dynamo.backend.graph.torch_private import kernels_only
from xla_dynamo.backend.lowering import host_kernels
from xla_dynamo.backend.lowering.source import location_of
from xla_dynamo.backend.runtime.partitions import Partitions

from . import depthwise, joint, lesser_products, onednn_lstm
from .launch import device_of
from .request import Request
from .turns import Name

aten = torch.ops.aten
ops = torch.ops.xla_dynamo


def between_programs(graph: Graph, request: Request) -> list[Node]:
    """The nodes that PyTorch computes, where tensors are in the memory that it has them in.

    Programs that several replicas run at once have their kernels within, and graphs of
    torch.compile on tensors of the lazy device. For what is recorded there, see array_parts.
    """
    if not may_be_split(graph, request):
        return []
    target = request.context().target
    calls = fx.calls(graph)
    beside = [node for node in calls if host_kernels.is_left_between(node, target)]
    found = beside if host_kernels.has_worthy(calls, target) else []
    products = lesser_products.paying(graph, found, lesser_products.candidates(calls, target))
    return [*(beside if products else found), *products]


def may_be_split(graph: Graph, request: Request) -> bool:
    """Whether `between_programs` may find kernels, once the passes have run."""
    target = request.context().target
    calls = fx.calls(graph)
    if not host_kernels.has_worthy(calls, target) and not lesser_products.candidates(calls, target):
        return False
    return _are_apart(graph, request)


def _are_apart(graph: Graph, request: Request) -> bool:
    """Whether kernels can run between programs: all tensors are of this process's one CPU."""
    if joint.collectives_of(graph):
        return False
    values = [node.meta.get("val") for node in (*fx.placeholders(graph), *fx.calls(graph))]
    if any(isinstance(v, torch.Tensor) and v.device.type != "cpu" for v in values):
        return False
    device, home = device_of(graph, request.options)
    return home is None and not isinstance(device, Partitions)


# What computes an op in place of its own kernel.
_KERNELS: dict[Any, Callable[..., Any]] = {
    **depthwise.KERNELS,
    # A kernel's result may lie in memory otherwise than a trace of the lazy device knows.
    aten.view.default: aten.reshape.default,
    ops.relu_backward.default: lambda grad, x: aten.threshold_backward.default(grad, x, 0),
    ops.hardtanh_backward.default: aten.hardtanh_backward.default,
    ops.hardswish.default: aten.hardswish.default,
    ops.hardswish_backward.default: aten.hardswish_backward.default,
    ops.leaky_relu_backward.default: functools.partial(
        aten.leaky_relu_backward.default, self_is_result=False
    ),
}


def kernel(node: Node) -> Callable[..., Any]:
    """A function of the node's arguments: the kernel of its op."""
    return of_name(name(node), str(location_of(node)))


def name(node: Node) -> Name:
    """What makes the kernel of a node: its op, how, and its number."""
    op = node.target
    how = op in onednn_lstm.KERNELS and onednn_lstm.is_differentiated(node)
    return ("kernel", op, how, node.meta.get("number"))


def of_name(name: Name, where: str) -> Callable[..., Any]:
    """The kernel that has a name, whatever modes the thread is in; where: the user's line."""
    _, op, how, number = name
    own = onednn_lstm.KERNELS.get(op)
    compute: Any = own(how) if own is not None else _KERNELS.get(op, op)

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with kernels_only():
                return compute(*args, **kwargs)
        except Exception as error:
            error.add_note(f"PyTorch's kernel of {op}, at {where}. {kernel_calls.REMEDY}")
            error_origin.blame(error, number)
            raise

    return run
