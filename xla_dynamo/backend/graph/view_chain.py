"""A result that is a view -> the steps that make it of an argument, or of another result.

Nothing is computed and nothing is copied. AOTAutograd makes a view of an argument anew from the
strides and the place in memory that the graph's result has, wherever sizes are symbolic: it must
have eager's.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from . import fx, host_ops

_STRIDED = torch.ops.aten.as_strided.default
# A function, its arguments after the tensor (or the list of tensors), and its keywords.
Steps = tuple[tuple[Any, tuple[Any, ...], dict[str, Any]], ...]


def of_argument(result: Node) -> tuple[Node, Steps] | None:
    """The placeholder that `result` is a view of and the steps from it, or None."""
    node, steps = trace(result)
    if not steps or node.op != "placeholder":
        return None
    memory, other = (n.meta["val"].untyped_storage()._cdata for n in (node, result))
    # An as_strided that was rewritten is a view of what the host sees, another fake tensor.
    same = memory == other or steps[0][0] is host_ops.strided
    return (node, steps) if same else None


def trace(result: Node) -> tuple[Node, Steps]:
    """What the views that end with `result` begin with, and the steps from it."""
    steps = []
    node = result
    while node.op == "call_function":
        first, *others = node.args or (None,)
        if not isinstance(first, Node) or node.all_input_nodes != [first]:
            break
        if node.target is not operator.getitem and not fx.gives_views(node.target):
            break
        # Since memory.py has been there, from where the tensor begins.
        function = host_ops.strided if node.target is _STRIDED else node.target
        steps.append((function, tuple(others), dict(node.kwargs)))
        node = first
    steps.reverse()
    return node, tuple(steps)


def replay(tensor: Any, steps: Steps) -> torch.Tensor:
    """The view of `tensor` that `steps` make."""
    for function, others, keywords in steps:
        tensor = function(tensor, *others, **keywords)
    return tensor
