"""Compute log_softmax's gradient from its input, a maximum and a sum for each row.

PyTorch saves the output for backward: for a language model's logits, hundreds of megabytes that are
written and read again although the input is at hand. The gradient needs the probabilities,
exponentials of the input, which XLA fuses into it. So the op is decomposed to maximum, sum and
differences before the joint graph is partitioned, and only the maxima and sums of rows are saved.
The backward of nll_loss reads only the shape of its input, and is given log_softmax's input; the
sum of its gradient over the classes is an op of `ops.fused`, without adding up. Not on the CPU,
nll_loss itself, which reads one number of each row, subtracts for that number alone. And there a
row is divided by its sum as one number: a gradient with no division for each element XLA:TPU
computes again within each product that reads it, so that nothing of the logits' size is written.

Where PyTorch's kernels run between programs of the CPU, log_softmax and its gradient are two of
them, and stay: 512 x 1000 logits' 0.3 ms and 0.3, the programs' 1.7 and 1.3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import call, drop_detached, substitute, substitute_made
from xla_dynamo.backend.lowering import host_kernels
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
ops = torch.ops.xla_dynamo
# 16-bit floats keep the op: their output is rounded, and eager's gradient is of that.
_DTYPES = (torch.float32, torch.float64)
_FORWARD = (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
_LOSSES = (aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)


def recompute_log_softmax(graph: Graph, context: Context) -> bool:
    """Rewrite, in place, each log_softmax whose gradient is in `graph`, too.

    Not on the CPU, also those whose loss is.
    """
    if _is_pytorchs(graph, context):
        return False
    changed = False
    for node in graph.find_nodes(op="call_function", target=aten._log_softmax.default):
        arguments: Any = node.args
        x, dim, _ = arguments
        drop_detached(graph, node)
        gradients = [user for user in node.users if _is_gradient(user, node)]
        losses = [] if context.target.platform == "cpu" else _losses(node, dim)
        wide = x.meta["val"].dtype == node.meta["val"].dtype
        if (gradients or losses) and wide and _has_rows(x.meta["val"]):
            _split(graph, node, x, dim, gradients, losses, context.target.platform != "cpu")
            changed = True
    return changed


def _is_pytorchs(graph: Graph, context: Context) -> bool:
    """Whether the graph is split for PyTorch's kernels, those of log_softmax among them."""
    if fx.shape_env(graph) is not None:  # what pays is asked of numbers
        return False
    return host_kernels.has_worthy(fx.calls(graph), context.target)


def _losses(output: Node, dim: int) -> list[Node]:
    if not _is_class_axis(dim, output):
        return []
    return [user for user in output.users if user.target in _FORWARD and user.args[0] is output]


def _is_gradient(user: Node, output: Node) -> bool:
    if user.target is not aten._log_softmax_backward_data.default:
        return False
    return user.args[1] is output and bool(user.args[2] == output.args[1])


def _has_rows(x: torch.Tensor) -> bool:
    empty = any(isinstance(size, int) and size == 0 for size in x.shape)
    return x.dtype in _DTYPES and x.dim() > 0 and not empty


def _split(
    graph: Graph,
    node: Node,
    x: Node,
    dim: int,
    gradients: list[Node],
    losses: list[Node],
    divides_rows: bool,
) -> None:
    forward = partial(call, graph, like=node)
    with graph.inserting_before(node):
        below = forward(aten.sub.Tensor, x, forward(aten.amax.default, x, [dim], True))
        weights = forward(aten.exp.default, below)
        total = forward(aten.sum.dim_IntList, weights, [dim], True)
        log_total = forward(aten.log.default, total)
        output = forward(aten.sub.Tensor, below, log_total)
    for gradient in gradients:
        grad: Any = gradient.args[0]
        backward = partial(call, graph, like=gradient)
        with graph.inserting_before(gradient):
            sums = _sum_over_classes(backward, grad, dim)
            if divides_rows:
                taken = backward(aten.mul.Tensor, weights, backward(aten.div.Tensor, sums, total))
            else:
                taken = backward(aten.mul.Tensor, backward(aten.div.Tensor, weights, total), sums)
            substitute_made(gradient, backward(aten.sub.Tensor, grad, taken))
    for user in list(node.users):
        if user.target in _LOSSES and user.args[1] is node:
            user.replace_input_with(node, x)
    for user in losses:
        with graph.inserting_before(user):
            parts = below, log_total, *user.args[1:]
            substitute(user, call(graph, ops.nll_loss_of_parts.default, *parts, like=user))
    substitute_made(node, output)


def _sum_over_classes(call: Callable[..., Node], grad: Any, dim: int) -> Node:
    """The sum of `grad` over `dim`, computed without reading it where it is constant or one-hot."""
    value, operands = grad.meta["val"], grad.args
    dim = dim % value.dim()
    if grad.target in _LOSSES and _is_class_axis(dim, grad):
        loss_gradient, _, *rest = operands
        return call(ops.nll_loss_row_gradient.default, loss_gradient, *rest)
    if grad.target is aten.expand.default:
        shape = list(value.shape)
        shape[dim] = 1
        if list(_shape(operands[0])) == shape:
            return call(aten.mul.Scalar, operands[0], value.shape[dim])
    plain = grad.target is aten.add.Tensor and not grad.kwargs
    if plain and all(isinstance(o, Node) and _shape(o) == value.shape for o in operands):
        sums = [_sum_over_classes(call, operand, dim) for operand in operands]
        return call(aten.add.Tensor, *sums)
    return call(aten.sum.dim_IntList, grad, [dim], True)


def _is_class_axis(dim: int, node: Node) -> bool:
    dims = node.meta["val"].dim()
    return dims > 0 and dim % dims == min(dims - 1, 1)


def _shape(node: Node) -> torch.Size:
    return node.meta["val"].shape
