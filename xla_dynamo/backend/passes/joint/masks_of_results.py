"""Gradients of activations look at their results, not at their inputs, on the CPU.

Where ReLU6 lies between its bounds, its input does, and leaky ReLU has its input's sign. A
convolution or a product that comes next saves the result in any case; of the input forward would
make a mask, one more result, for backward.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
# What saves its operands for its gradient.
_SAVING = (aten.convolution.default, aten.mm.default, aten.addmm.default, aten.bmm.default)
Comparison = tuple[Any, float]  # an op of a tensor and a number; the number


def look_at_results(graph: Graph, context: Context) -> bool:
    """Rewrite `graph` in place."""
    if context.target.platform != "cpu" or context.forward_outputs is None:
        return False
    changed = False
    for op, comparisons in ((aten.hardtanh.default, _bounds), (aten.leaky_relu.default, _sign)):
        for result in graph.find_nodes(op="call_function", target=op):
            x: Any = result.args[0]
            alike = comparisons(fx.arguments(result))
            later = [user for user in x.users if result < user]
            masks = [user for user in later if (user.target, *user.args[1:]) in alike]
            if masks and _is_saved(result.users):
                for mask in masks:
                    mask.replace_input_with(x, result)
                changed = True
    return changed


def _bounds(arguments: dict[str, Any]) -> list[Comparison]:
    low, high = arguments["min_val"], arguments["max_val"]
    return [(aten.le.Scalar, low), (aten.ge.Scalar, high)] if low < high else []


def _sign(arguments: dict[str, Any]) -> list[Comparison]:
    return [(aten.gt.Scalar, 0)] if arguments["negative_slope"] >= 0 else []


def _is_saved(users: Iterable[Node]) -> bool:
    """Whether one of them, or what reads a view that one is, saves its operands."""
    return any(
        user.target in _SAVING or (fx.gives_views(user.target) and _is_saved(user.users))
        for user in users
    )
