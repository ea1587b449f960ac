"""Join what activations and their gradients are made of to one op each for PyTorch's kernels.

In a program comparisons and a choice, where(x <= 0, 0, grad), are one loop anyway. One by one
PyTorch takes 5 ns for each element of them, for `aten::threshold_backward` 0.4: so what lies
between the convolutions of a ResNet or a MobileNet is small (see `executable.small_parts`), in its
gradients, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import drop_unused, insert, substitute
from xla_dynamo.backend.lowering import host_kernels
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
ops = torch.ops.xla_dynamo

# A pattern is an op and the patterns of its arguments, or an argument: a number as it is, or a name
# of what may stand there, a tensor or one of _NUMBERS.
Pattern = Any
_NUMBERS = ("low", "high", "slope")
_ZERO = object()  # a tensor of one zero

# What an activation or its gradient is made of; the op that it is, and its arguments.
_JOINED: Sequence[tuple[Pattern, Any, Sequence[str]]] = (
    (
        (aten.where.self, (aten.le.Scalar, "x", 0), _ZERO, "grad"),
        ops.relu_backward.default,
        ("grad", "x"),
    ),
    (
        (
            aten.where.self,
            (aten.bitwise_or.Tensor, (aten.le.Scalar, "x", "low"), (aten.ge.Scalar, "x", "high")),
            _ZERO,
            "grad",
        ),
        ops.hardtanh_backward.default,
        ("grad", "x", "low", "high"),
    ),
    (
        (aten.where.self, (aten.gt.Scalar, "x", 0), "grad", (aten.mul.Tensor, "grad", "slope")),
        ops.leaky_relu_backward.default,
        ("grad", "x", "slope"),
    ),
    (
        (
            aten.where.self,
            (aten.le.Scalar, "x", -3),
            _ZERO,
            (
                aten.where.self,
                (aten.lt.Scalar, "x", 3),
                (aten.mul.Tensor, "grad", (aten.add.Tensor, (aten.div.Tensor, "x", 3), 0.5)),
                "grad",
            ),
        ),
        ops.hardswish_backward.default,
        ("grad", "x"),
    ),
    (
        (
            aten.div.Tensor,
            (
                aten.mul.Tensor,
                "x",
                (aten.clamp.default, (aten.clamp.default, (aten.add.Tensor, "x", 3), 0), None, 6),
            ),
            6,
        ),
        ops.hardswish.default,
        ("x",),
    ),
)


def join_activations(graph: Graph, context: Context) -> bool:
    """Rewrite `graph` in place."""
    calls = fx.calls(graph)
    if not host_kernels.has_worthy(calls, context.target):
        return False
    changed = False
    for node in calls:
        if (found := _joined(node)) is not None:
            op, args = found
            with graph.inserting_before(node):
                substitute(node, insert(graph, op, args, {}, like=node, value=node.meta["val"]))
            changed = True
    if changed:
        drop_unused(graph)
    return changed


def _joined(node: Node) -> tuple[Any, tuple[Any, ...]] | None:
    """The op that `node` is the last part of, and its arguments, of one shape and dtype."""
    for pattern, op, names in _JOINED:
        found: dict[str, Any] = {}
        if pattern[0] is node.target and _matches(pattern, node, found):
            tensors = (each for each in found.values() if isinstance(each, Node))
            values = [each.meta["val"] for each in (node, *tensors)]
            same = len({(value.dtype, value.shape) for value in values}) == 1
            return (op, tuple(map(found.get, names))) if same else None
    return None


def _matches(pattern: Pattern, argument: Any, found: dict[str, Any]) -> bool:
    """Whether an argument is as `pattern` says; what has names is in `found` then."""
    if pattern is _ZERO:
        is_number = getattr(argument, "target", None) is aten.scalar_tensor.default
        return is_number and argument.args[0] == 0
    if isinstance(pattern, str):
        is_number = isinstance(argument, int | float)
        if is_number != (pattern in _NUMBERS):
            return False
        return found.setdefault(pattern, float(argument) if is_number else argument) == argument
    if not isinstance(pattern, tuple):
        return not isinstance(argument, Node) and argument == pattern
    op, *patterns = pattern
    if getattr(argument, "target", None) is not op or argument.kwargs:
        return False
    if len(argument.args) != len(patterns):
        return False
    return all(
        _matches(inner, each, found) for inner, each in zip(patterns, argument.args, strict=True)
    )
