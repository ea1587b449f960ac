"""Give values the strides of eager's results where shape inference gives others.

Only `meta["val"]` changes, from which views, as_strided and the strides of outputs are derived.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from xla_dynamo.backend.decompositions.eager_layout import LIKE, with_eager_strides
from xla_dynamo.backend.graph import fx, torch_private
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
_EXCHANGES = (aten.permute.default, aten.transpose.int)


def restore_eager_layout(graph: Graph, context: Context) -> bool:
    """Give the values of a static graph the strides that eager's results have."""
    changed: set[Node] = set()
    for node in fx.calls(graph):
        if node.target not in LIKE and changed.isdisjoint(node.all_input_nodes):
            continue
        new = inferred(node)
        if new is not None and new is not node.meta.get("val"):
            node.meta["val"] = new
            changed.add(node)
    return bool(changed)


def infer_strides(graph: Graph) -> None:
    """Give the values of a static graph, all row-major so far, the strides that eager's have.

    Each gets memory of its own, but for views: a recorded graph has one fake tensor for all alike.
    Where no dimensions are exchanged but a matrix's, and no channels last, all stay row-major.
    """
    calls = fx.calls(graph)
    is_mixed = any(_is_in_other_order(node) for node in calls)
    for node in graph.nodes:
        if node.op == "call_function":
            old = node.meta.get("val")
            new = inferred(node) if is_mixed and node.all_input_nodes else old
            node.meta["val"] = _distinct(old) if new is None or new is old else new
        elif node.op == "placeholder":
            node.meta["val"] = _distinct(node.meta.get("val"))


def _is_in_other_order(node: Node) -> bool:
    if node.target is aten.clone.default:
        return node.kwargs.get("memory_format") is torch.channels_last
    return node.target in _EXCHANGES and node.meta["val"].dim() > 2


def _distinct(value: Any) -> Any:
    return pytree.tree_map_only(Tensor, torch_private.another_fake, value)


def _traced(node: Node) -> Any:
    return node.meta["val"]


def inferred(node: Node, value_of: Callable[[Node], Any] = _traced) -> Any:
    """The value of `node`, inferred anew from those of its operands; None where that fails."""
    op: Any = node.target
    old: Any = node.meta.get("val")
    if not (isinstance(op, torch._ops.OpOverload) or op is operator.getitem):
        return None
    if "unbacked_bindings" in node.meta:
        return None
    args, kwargs = map_arg((node.args, node.kwargs), value_of)
    if op in LIKE:
        return with_eager_strides(op, args, old)
    try:
        new = op(*args, **kwargs)
    except (RuntimeError, ValueError):  # a view that strides do not allow
        return None
    same = [_shape(leaf) for leaf in pytree.tree_leaves(new)]
    return new if same == [_shape(leaf) for leaf in pytree.tree_leaves(old)] else None


def _shape(value: Any) -> Any:
    return (value.shape, value.dtype) if isinstance(value, Tensor) else value
