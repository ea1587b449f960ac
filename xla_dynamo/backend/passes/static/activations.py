"""Join what activations and their gradients are made of to one op each for PyTorch's kernels.

In a program comparisons and a choice, where(x <= 0, 0, grad), are one loop anyway. One by one
PyTorch takes 5 ns for each element of them, for `aten::threshold_backward` 0.4: so what lies
between the convolutions of a ResNet or a MobileNet is small (see `executable.small_parts`), in its
gradients, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import insert, substitute
from xla_dynamo.backend.lowering import host_kernels
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
ops = torch.ops.xla_dynamo

Joined = tuple[Any, tuple[Any, ...]]  # an op and its arguments


def join_activations(graph: Graph, context: Context) -> bool:
    """Rewrite `graph` in place."""
    joined = {node: found for node in fx.calls(graph) if (found := _joined(node)) is not None}
    if not joined or not host_kernels.has_worthy(fx.calls(graph), context.target):
        return False
    for node, (op, args) in joined.items():
        unused = node.all_input_nodes
        with graph.inserting_before(node):
            substitute(node, insert(graph, op, args, {}, like=node, value=node.meta["val"]))
        _erase(unused)
    return True


def _joined(node: Node) -> Joined | None:
    """What `node` is the end of, of tensors of one shape and dtype."""
    for match in _ENDS.get(node.target, ()):
        if (found := match(*node.args)) is not None:
            operands = (each for each in found[1] if isinstance(each, Node))
            values = [each.meta["val"] for each in (node, *operands)]
            return found if len({(v.dtype, v.shape) for v in values}) == 1 else None
    return None


def _of_relu(condition: Any, chosen: Any, other: Any) -> Joined | None:
    """where(x <= 0, 0, grad)."""
    compared = _compared(condition, aten.le.Scalar)
    if compared is None or compared[1] != 0 or not _is_zero(chosen):
        return None
    return ops.relu_backward.default, (other, compared[0])


def _of_hardtanh(condition: Any, chosen: Any, other: Any) -> Joined | None:
    """where((x <= low) | (x >= high), 0, grad), of ReLU6, too."""
    if condition.target is not aten.bitwise_or.Tensor or not _is_zero(chosen):
        return None
    below, above = condition.args
    low, high = _compared(below, aten.le.Scalar), _compared(above, aten.ge.Scalar)
    if low is None or high is None or low[0] is not high[0]:
        return None
    return ops.hardtanh_backward.default, (other, low[0], float(low[1]), float(high[1]))


def _of_leaky_relu(condition: Any, chosen: Any, other: Any) -> Joined | None:
    """where(x > 0, grad, grad * slope)."""
    compared = _compared(condition, aten.gt.Scalar)
    if compared is None or compared[1] != 0 or other.target is not aten.mul.Tensor:
        return None
    grad, slope = other.args
    if grad is not chosen or not isinstance(slope, int | float):
        return None
    return ops.leaky_relu_backward.default, (grad, compared[0], float(slope))


def _of_hardswish_gradient(condition: Any, chosen: Any, other: Any) -> Joined | None:
    """where(x <= -3, 0, where(x < 3, grad * (x / 3 + 0.5), grad))."""
    below = _compared(condition, aten.le.Scalar)
    if (
        below is None
        or below[1] != -3
        or not _is_zero(chosen)
        or other.target is not aten.where.self
    ):
        return None
    inner, scaled, grad = other.args
    x = below[0]
    if _compared(inner, aten.lt.Scalar) != (x, 3) or scaled.target is not aten.mul.Tensor:
        return None
    factor, slope = scaled.args
    if factor is not grad or getattr(slope, "target", None) is not aten.add.Tensor:
        return None
    third, half = slope.args
    if half != 0.5 or _compared(third, aten.div.Tensor) != (x, 3):
        return None
    return ops.hardswish_backward.default, (grad, x)


def _of_hardswish(dividend: Any, divisor: Any) -> Joined | None:
    """x * clamp(x + 3, 0, 6) / 6."""
    if divisor != 6 or not isinstance(dividend, Node) or dividend.target is not aten.mul.Tensor:
        return None
    x, clamped = dividend.args
    if not isinstance(clamped, Node) or clamped.args[1:] != (None, 6):
        return None
    at_least: Any = clamped.args[0]
    if clamped.target is not aten.clamp.default or at_least.target is not aten.clamp.default:
        return None
    if at_least.args[1:] != (0,) or _compared(at_least.args[0], aten.add.Tensor) != (x, 3):
        return None
    return ops.hardswish.default, (x,)


# What a match begins with, its last op.
_ENDS: Mapping[Any, Sequence[Callable[..., Joined | None]]] = {
    aten.where.self: (_of_relu, _of_hardtanh, _of_leaky_relu, _of_hardswish_gradient),
    aten.div.Tensor: (_of_hardswish,),
}


def _compared(node: Any, op: Callable[..., Any]) -> Sequence[Any] | None:
    """What `op` compares, adds or divides, and the number with which."""
    return node.args if isinstance(node, Node) and node.target is op else None


def _is_zero(node: Any) -> bool:
    return node.target is aten.scalar_tensor.default and node.args[0] == 0


def _erase(nodes: Sequence[Node]) -> None:
    """Erase those that nothing uses, and so on for what only they use."""
    for node in nodes:
        if not node.users and node.op != "placeholder" and node in node.graph.nodes:
            operands = node.all_input_nodes
            node.graph.erase_node(node)
            _erase(operands)
