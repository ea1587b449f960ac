"""Join where(x <= 0, 0, grad), the gradient of ReLU, to one op where PyTorch's kernels are used.

In a program a comparison and a choice are one loop anyway. One by one PyTorch takes 5 ns for each
element of them, for `aten::threshold_backward` 0.4: so what lies between the convolutions of a
ResNet is small (see `executable.small_parts`) in its gradients, too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import insert, substitute
from xla_dynamo.backend.lowering import host_kernels
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten


def join_relu_gradients(graph: Graph, context: Context) -> bool:
    """Rewrite `graph` in place."""
    choices = graph.find_nodes(op="call_function", target=aten.where.self)
    choices = [node for node in choices if _is_relu_gradient(node)]
    if not choices or not host_kernels.has_worthy(fx.calls(graph), context.target):
        return False
    for choice in choices:
        condition, zero, grad = _operands(choice)
        op, args = torch.ops.xla_dynamo.relu_backward.default, (grad, condition.args[0])
        with graph.inserting_before(choice):
            substitute(choice, insert(graph, op, args, {}, like=choice, value=choice.meta["val"]))
        for node in (condition, zero):
            if not node.users:
                graph.erase_node(node)
    return True


def _is_relu_gradient(choice: Node) -> bool:
    condition, zero, grad = _operands(choice)
    if condition.target is not aten.le.Scalar or condition.args[1] != 0:
        return False
    if zero.target is not aten.scalar_tensor.default or zero.args[0] != 0:
        return False
    values = [node.meta["val"] for node in (choice, grad, condition.args[0])]
    return len({(value.dtype, value.shape) for value in values}) == 1


def _operands(choice: Node) -> tuple[Any, Any, Any]:
    """Of `where`: the condition, what is chosen where it holds, and what elsewhere."""
    condition, chosen, other = choice.args
    return condition, chosen, other
