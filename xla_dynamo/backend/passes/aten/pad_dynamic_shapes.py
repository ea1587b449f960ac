"""Replace ops with data-dependent shapes by padded ops, and a count that the host reads.

decompositions/dynamic_shapes.py says how each op is decomposed.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import free_symbols
from torch.fx.node import map_arg

from xla_dynamo.backend.decompositions.dynamic_shapes import padded, tells_on_zeros
from xla_dynamo.backend.graph import edit, host_ops
from xla_dynamo.backend.graph.fx import is_symbolic
from xla_dynamo.backend.lowering import operands
from xla_dynamo.backend.lowering.nodes import output_values
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten


def pad_dynamic_shapes(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, whose shapes may be symbolic, in place."""
    changed = False
    for node in [node for node in graph.nodes if padded(node.target)]:
        if node.meta.get("unbacked_bindings"):
            changed |= _rewrite(graph, node)
        elif node.target is not aten.index.Tensor:
            changed |= _make_empty(graph, node)
    return changed


def _rewrite(graph: Graph, node: Node) -> bool:
    size = _unknown_size(node)
    if size is None or _is_refused(node):
        return False
    decompose = padded(node.target)
    assert decompose is not None
    with graph.inserting_before(node):
        result = decompose(_Nodes(graph, node, size), *node.args, **node.kwargs)
    _replace(graph, node, result)
    return True


def _is_refused(node: Node) -> bool:
    """Whether eager raises for such operands: the node then stays, and raises on the host."""
    args, kwargs = map_arg((node.args, node.kwargs), _stand_in)
    if not tells_on_zeros(node.target, args):
        return False
    return operands.error_of_zeros(node.target, args, kwargs) is not None


def _stand_in(operand: Node) -> torch.Tensor:
    """A tensor of the operand's dtype; 1 stands for a size that is not known."""
    value = operand.meta["val"]
    sizes = [1 if is_symbolic(size) else size for size in value.shape]
    return torch.empty(sizes, dtype=value.dtype, device="meta")


def _make_empty(graph: Graph, node: Node) -> bool:
    """Make empty results: of an empty tensor, PyTorch infers their shapes without data."""
    operand = node.args[0]
    values = output_values(node)
    assert isinstance(operand, Node)
    if any(value.numel() != 0 for value in values):
        return False

    def empty(value: torch.Tensor) -> Node:
        shape, dtype = list(value.shape), value.dtype
        return edit.call(graph, aten.new_empty.default, operand, shape, dtype=dtype, like=node)

    with graph.inserting_before(node):
        made = [empty(value) for value in values]
    _replace(graph, node, made[0] if isinstance(node.meta["val"], torch.Tensor) else made)
    return True


def _unknown_size(node: Node) -> torch.SymInt | None:
    """The data-dependent size of the first result, which no size of an operand determines."""
    known = free_symbols([operand.meta["val"] for operand in node.all_input_nodes])
    first, *_ = output_values(node)
    sizes: list[Any] = [size for size in first.shape if is_symbolic(size)]
    return next((size for size in sizes if not free_symbols(size) <= known), None)


def _replace(graph: Graph, node: Node, result: Any) -> None:
    if isinstance(result, Node):
        result.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(result)
    else:
        for user in list(node.users):
            assert user.target is operator.getitem
            user.replace_all_uses_with(result[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)


class _Nodes:
    """Carries out a decomposition as nodes in place of `origin`, whose result has size `size`."""

    def __init__(self, graph: Graph, origin: Node, size: torch.SymInt) -> None:
        self._graph = graph
        self._origin = origin
        self._size = size

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        call = partial(edit.call, self._graph, like=self._origin)
        node = call(op, *args, **kwargs)
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            return node
        return tuple(call(operator.getitem, node, i) for i in range(len(value)))

    def value(self, operand: Node) -> torch.Tensor:
        return operand.meta["val"]

    def size(self, count: Node, complaint: str) -> Node:
        return self._step(host_ops.size, self._size, count, complaint)

    def leading(self, padded: Node, count: Node, dim: int = 0, transposed: bool = False) -> Node:
        value = padded.meta["val"]
        shape = [self._size if d == dim else n for d, n in enumerate(value.shape)]
        valid = value.new_empty(shape)
        valid = valid.t() if transposed else valid
        return self._step(host_ops.leading, valid, padded, count, dim, transposed)

    def _step(self, step: Any, value: Any, *args: Any) -> Node:
        return edit.insert(self._graph, step, args, {}, like=self._origin, value=value)
