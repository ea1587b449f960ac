"""The view ops that make a result of an argument, or of another result.

Replaying them computes and copies nothing. Where sizes are symbolic, AOTAutograd makes a view of
an argument anew from the strides and the storage offset of the graph's result, which must be
eager's.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from . import fx, host_ops

_STRIDED = torch.ops.aten.as_strided.default
# Functions, each with its arguments after the tensor (or the list of tensors) and its keywords.
ViewOps = tuple[tuple[Any, tuple[Any, ...], dict[str, Any]], ...]


def of_argument(result: Node) -> tuple[Node, ViewOps] | None:
    """The placeholder that `result` is a view of, and the view ops; None if it is not a view."""
    node, ops = trace(result)
    if not ops or node.op != "placeholder":
        return None
    memory, other = (n.meta["val"].untyped_storage()._cdata for n in (node, result))
    # A resolved as_strided is a view of host_ops.memory, whose fake tensor has another storage.
    same = memory == other or ops[0][0] is host_ops.strided
    return (node, ops) if same else None


def trace(result: Node) -> tuple[Node, ViewOps]:
    """The base of the chain of views that ends with `result`, and the view ops from it."""
    ops = []
    node = result
    while node.op == "call_function":
        first, *others = node.args or (None,)
        if not isinstance(first, Node) or node.all_input_nodes != [first]:
            break
        if node.target is not operator.getitem and not fx.gives_views(node.target):
            break
        # After resolve_as_strided, offsets count from where the tensor begins.
        function = host_ops.strided if node.target is _STRIDED else node.target
        ops.append((function, tuple(others), dict(node.kwargs)))
        node = first
    return node, tuple(reversed(ops))


def replay(tensor: Any, ops: ViewOps) -> torch.Tensor:
    """The view of `tensor` that `ops` make."""
    for function, others, keywords in ops:
        tensor = function(tensor, *others, **keywords)
    return tensor
