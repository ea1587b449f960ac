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
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.contract import Context


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
    except RuntimeError:  # a view that strides do not allow
        return None
    same = [_shape(leaf) for leaf in pytree.tree_leaves(new)]
    return new if same == [_shape(leaf) for leaf in pytree.tree_leaves(old)] else None


def _shape(value: Any) -> Any:
    return (value.shape, value.dtype) if isinstance(value, Tensor) else value
