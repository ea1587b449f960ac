"""Give values the strides of eager's results where shape inference gives others.

Only `meta["val"]` changes, from which views, as_strided and the strides of outputs are derived.
"""

from __future__ import annotations

import operator
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
        value = _value(node)
        if value is not None:
            node.meta["val"] = value
            changed.add(node)
    return bool(changed)


def infer_strides(graph: Graph) -> None:
    """Give the values of a static graph, all row-major so far, the strides that eager's have.

    Each gets memory of its own, but for views: a recorded graph has one fake tensor for all alike.
    Where no dimensions are exchanged but a matrix's, all stay row-major.
    """
    calls = fx.calls(graph)
    is_mixed = any(node.target in _EXCHANGES and node.meta["val"].dim() > 2 for node in calls)
    for node in graph.nodes:
        if node.op == "call_function":
            own = _value(node) if is_mixed and node.all_input_nodes else None
            node.meta["val"] = _distinct(node.meta.get("val")) if own is None else own
        elif node.op == "placeholder":
            node.meta["val"] = _distinct(node.meta.get("val"))


def _distinct(value: Any) -> Any:
    return pytree.tree_map_only(Tensor, torch_private.another_fake, value)


def _value(node: Node) -> Any:
    """The value of `node`, inferred anew from its operands; None where it stays as it is."""
    op: Any = node.target
    old: Any = node.meta.get("val")
    if not (isinstance(op, torch._ops.OpOverload) or op is operator.getitem):
        return None
    if "unbacked_bindings" in node.meta:
        return None
    args, kwargs = map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    if op in LIKE:
        new = with_eager_strides(op, args, old)
        return None if new is old else new
    try:
        new = op(*args, **kwargs)
    except (RuntimeError, ValueError):  # a view that strides do not allow
        return None
    same = [_shape(leaf) for leaf in pytree.tree_leaves(new)]
    return new if same == [_shape(leaf) for leaf in pytree.tree_leaves(old)] else None


def _shape(value: Any) -> Any:
    return (value.shape, value.dtype) if isinstance(value, Tensor) else value
