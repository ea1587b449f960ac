"""Pointwise ops whose shape inference orders dimensions otherwise than eager -> as eager does.

Where operands differ in the order of their dimensions in memory, eager's result has that of the
first which decides. PyTorch infers these ops from what they are made of, where another operand
comes first. as_strided and result strides show the difference.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from . import fx_graph

aten = torch.ops.aten

_AS_A_SUM = frozenset(
    {
        aten.complex.default,
        aten.copysign.Tensor,
        aten.div.Tensor_mode,
        aten.floor_divide.default,
        aten.heaviside.default,
        aten.logaddexp.default,
        aten.logaddexp2.default,
        aten.logical_and.default,
        aten.logical_or.default,
        aten.logical_xor.default,
        aten.polar.default,
        aten.special_xlog1py.default,
        aten.xlogy.Tensor,
    }
)


def mended(op: Any, args: Any, result: Any) -> Any:
    """What shape inference gave for `op` of fake tensors, with the strides of eager's result."""
    if op not in _AS_A_SUM:
        return result
    like = aten.add.Tensor(*args[:2])
    if like.shape != result.shape or like.stride() == result.stride():
        return result
    return result.new_empty_strided(result.shape, like.stride())


def mend(graph: Graph) -> None:
    """Let the values of `graph`, whose shapes are static, have the strides of eager's."""
    changed: set[Node] = set()
    for node in fx_graph.calls(graph):
        if node.target not in _AS_A_SUM and changed.isdisjoint(node.all_input_nodes):
            continue
        value = _value(node)
        if value is not None:
            node.meta["val"] = value
            changed.add(node)


def _value(node: Node) -> Any:
    """The value of `node` for those of its operands; None if it is the one that it has."""
    op: Any = node.target
    old: Any = node.meta.get("val")
    if not (isinstance(op, torch._ops.OpOverload) or op is operator.getitem):
        return None
    if "unbacked_bindings" in node.meta:
        return None
    args, kwargs = map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    if op in _AS_A_SUM:
        new = mended(op, args, old)
        return None if new is old else new
    try:
        new = op(*args, **kwargs)
    except RuntimeError:  # a view that strides do not allow
        return None
    same = [_shape(leaf) for leaf in pytree.tree_leaves(new)]
    return new if same == [_shape(leaf) for leaf in pytree.tree_leaves(old)] else None


def _shape(value: Any) -> Any:
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else value
