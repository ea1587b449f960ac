"""Lay images out with channels last between PyTorch's convolutions, where these gain from it.

oneDNN computes with the channels in blocks: of row-major images it makes such ones first, and turns
the result back. With channels last it takes them as they lie, but turns the weights each time. So
it gains with many pixels and few weights: microseconds of PyTorch's kernel, row-major / channels
last, two cores of an Emerald Rapids (torch 2.13):

| convolution | forward | gradients |
|---|---|---|
| 3x3, 4 images, 64 channels of 32x32 | 1570, 1450 | 3900, 3110 |
| 3x3, 64 images, 32 to 64 channels of 26x26 | 10200, 7600 | 21100, 17200 |
| 3x3, 8 images, 64 channels of 56x56 | 13800, 8600 | 28600, 21000 |
| 1x1, 8 images, 256 to 64 channels of 56x56 | 14300, 5500 | 39000, 19500 |
| 3x3, 8 images, 256 channels of 14x14 | 8200, 8400 | 18000, 18100 |
| 3x3, 16 images, 512 channels of 2x2 | 3100, 10400 | 8900, 23400 |

Pooling, upsampling and norms keep the order, and have vector code for it in PyTorch. So a graph has
all its images in one order, the better one; what it takes and returns keeps eager's.

A graph that has rows of channels, such as a vision transformer or a ConvNeXt, makes them of a
convolution's result, whose row-major images would be read across. There that one convolution gives
channels last, as it does if its weight has them: a layer norm of 8 images, 48 channels of 32x32,
takes 1.2 ms, so 0.4 (Zen 3).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.graph.memory_layout import has_channels_last
from xla_dynamo.backend.lowering import host_convolutions, host_kernels
from xla_dynamo.backend.passes.contract import Context
from xla_dynamo.backend.passes.static.eager_layout import inferred

aten = torch.ops.aten
_LAST, _ROW_MAJOR = torch.channels_last, torch.contiguous_format
_IMAGE_AT: dict[Any, int] = {aten.convolution.default: 0, aten.convolution_backward.default: 1}
_WEIGHT_AT = 1  # of a convolution
_ROWS = ([0, 2, 3, 1], [0, 2, 1])  # images, or flat ones, with their channels last
_VIEWS = (aten.view.default, aten._unsafe_view.default)
_OF_STRIDES = (aten.as_strided.default, aten.view.dtype)
# Nanoseconds that channels last save for each element of a convolution's two images, in caches or
# beyond; that they cost for each weight; and the same of its gradients.
_SAVED, _SAVED_BEYOND, _PER_WEIGHT = 0.3, 1.0, 1.5
_SAVED_OF_GRADIENTS, _PER_WEIGHT_OF_GRADIENTS = 1.2, 3.0
_BEYOND = 10**6
_PER_COPY = 0.9  # for each element that is copied into the other order
_SAVED_OF_ROWS = 1.2  # for each element of a result that is read as rows
_LEAST = 5e4


def lay_images_out(graph: Graph, context: Context) -> bool:
    """Turn the images of convolutions, or the weights of some, if that saves more than it costs."""
    if context.target.kernels != "torch" or context.partitioned or fx.shape_env(graph) is not None:
        return False
    convolutions = [node for node in fx.calls(graph) if _gains(node, context)]
    if not convolutions or not _is_on_cpu(graph):
        return False
    images = {node: _image(node) for node in convolutions}
    if _is_row_major(graph) and _lay_out(graph, images, _saved):
        return True
    rows = [node for node in convolutions if _is_read_as_rows(node)]
    return _lay_out(graph, {node: _weight(node) for node in rows}, _saved_of_rows)


def _lay_out(graph: Graph, turned: Mapping[Node, Node], saved_by: Callable[[Node], float]) -> bool:
    """Give these operands of convolutions channels last, if that saves more than it costs."""
    saved = sum(map(saved_by, turned))
    if saved < _LEAST:
        return False
    layout = _simulated(graph, turned)
    if layout is None or saved - layout.cost() < _LEAST:
        return False
    _apply(graph, layout)
    return True


def _gains(node: Node, context: Context) -> bool:
    """Whether a node is a convolution of images in PyTorch's kernel, or the gradient of one."""
    if node.target not in _IMAGE_AT:
        return False
    found = host_convolutions.described(*host_kernels.values(node))
    if found.image.dim() != 4 or found.image.dtype != torch.float32 or found.groups != 1:
        return False
    return host_kernels.is_worth_leaving_for(node, context.target)


def _is_on_cpu(graph: Graph) -> bool:
    """Whether all is strided, and of this process's CPU."""
    return all(x.device.type == "cpu" and fx.is_strided(x) for x in _tensors(graph))


def _is_row_major(graph: Graph) -> bool:
    """Whether no image has channels last already, or is random."""
    if any(_is_random_image(node) for node in fx.calls(graph)):
        return False
    return not any(map(has_channels_last, _tensors(graph)))


def _tensors(graph: Graph) -> Iterator[Tensor]:
    return (x for node in graph.nodes for x in fx.tensors(node.meta.get("val")))


def _saved(node: Node) -> float:
    """Nanoseconds that a convolution, or its gradients, take less with channels last."""
    found = host_convolutions.described(*host_kernels.values(node))
    elements, weights = found.image.numel() + found.result.numel(), found.weight.numel()
    if node.target is aten.convolution_backward.default:
        return elements * _SAVED_OF_GRADIENTS - weights * _PER_WEIGHT_OF_GRADIENTS
    each = _SAVED if elements < _BEYOND else _SAVED_BEYOND
    return elements * each - weights * _PER_WEIGHT


def _is_read_as_rows(node: Node) -> bool:
    """Whether what reads a convolution's result, or a view of it, has its channels last."""
    is_forward = node.target is aten.convolution.default
    if not is_forward or math.prod(_weight(node).meta["val"].shape[2:]) == 1:
        return False
    views = [view for view in node.users if view.target is aten.view.default]
    readers = [user for each in (node, *views) for user in each.users if user not in views]
    return bool(readers) and all(fx.permutation(reader) in _ROWS for reader in readers)


def _saved_of_rows(node: Node) -> float:
    return node.meta["val"].numel() * _SAVED_OF_ROWS


def _image(node: Node) -> Any:
    return node.args[_IMAGE_AT[node.target]]


def _weight(node: Node) -> Any:
    return node.args[_WEIGHT_AT]


@dataclass
class _Layout:
    """What becomes of a graph; the graph is as it was.

    values: of the nodes whose strides are other ones.
    copies: what copies of operands there are, by operand and memory format.
    used: which operand of a node is which copy.
    """

    values: dict[Node, Any] = field(default_factory=dict)
    copies: dict[tuple[Node, torch.memory_format], Tensor] = field(default_factory=dict)
    used: dict[tuple[Node, Node], torch.memory_format] = field(default_factory=dict)

    def value(self, node: Node) -> Any:
        return self.values.get(node, node.meta["val"])

    def copy(self, user: Node, operand: Node, order: torch.memory_format) -> None:
        self.used[user, operand] = order
        if (operand, order) not in self.copies:
            self.copies[operand, order] = self.value(operand).clone(memory_format=order)

    def operand(self, user: Node, node: Node) -> Any:
        order = self.used.get((user, node))
        return self.value(node) if order is None else self.copies[node, order]

    def cost(self) -> float:
        return sum(x.numel() * _PER_COPY for x in self.copies.values())


def _simulated(graph: Graph, turned: Mapping[Node, Node]) -> _Layout | None:
    """The graph with channels last in an operand of convolutions; None where that is not known."""
    layout = _Layout()
    for node in graph.nodes:
        if node.op == "output":
            for result in fx.results(graph):
                if isinstance(result, Node) and result in layout.values:
                    if not result.meta["val"].is_contiguous():
                        return None
                    layout.copy(node, result, _ROW_MAJOR)
        elif node.op == "call_function" and not _infer(node, turned.get(node), layout):
            return None
    return layout


def _infer(node: Node, turned: Node | None, layout: _Layout) -> bool:
    """Note the value of a node; whether it can be known, and by PyTorch's kernels."""
    if turned is not None and not has_channels_last(layout.value(turned)):
        layout.copy(node, turned, _LAST)
    operands = node.all_input_nodes
    if not any(each in layout.values or (node, each) in layout.used for each in operands):
        return True
    if node.target in _OF_STRIDES:
        return False
    new = inferred(node, lambda each: layout.operand(node, each))
    if new is None and node.target in _VIEWS:  # one that strides do not allow
        layout.copy(node, operands[0], _ROW_MAJOR)
        return True
    if new is None:
        return False
    if list(_strides(new)) != list(_strides(node.meta["val"])):
        layout.values[node] = new
        if _is_gradient_of_weight(node):  # which meets the weight next
            for user in node.users:
                layout.copy(user, node, _ROW_MAJOR)
    return True


def _is_random_image(node: Node) -> bool:
    """Whether it is what only a program makes: that would transpose the images that it takes."""
    is_op = isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
    return not is_op and any(x.dim() == 4 for x in fx.tensors(node.meta.get("val")))


def _is_gradient_of_weight(node: Node) -> bool:
    if node.target is not operator.getitem or node.args[1] != 1:
        return False
    source: Any = node.args[0]
    return source.target is aten.convolution_backward.default


def _apply(graph: Graph, layout: _Layout) -> None:
    for node, value in layout.values.items():
        node.meta["val"] = value
    made: dict[tuple[Node, torch.memory_format], Node] = {}
    arguments = fx.placeholders(graph)
    for (operand, order), value in layout.copies.items():
        like = operand if operand.op == "call_function" else next(iter(operand.users))
        with graph.inserting_after(arguments[-1] if operand in arguments else operand):
            made[operand, order] = edit.insert(
                graph,
                aten.clone.default,
                (operand,),
                {"memory_format": order},
                like=like,
                value=value,
            )
    for (user, operand), order in layout.used.items():
        user.replace_input_with(operand, made[operand, order])


def _strides(value: Any) -> Iterator[tuple[int, ...]]:
    return (x.stride() for x in fx.tensors(value))
