"""A graph with ops whose shape depends on data -> those made of steps (see counted)."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from xla_dynamo.backend.decompositions.dynamic_shapes import COUNTED, tells_on_zeros
from xla_dynamo.backend.graph import fx, host_ops
from xla_dynamo.backend.graph.fx import is_symbolic
from xla_dynamo.backend.lowering import operands
from xla_dynamo.backend.lowering.bodies import output_values

aten = torch.ops.aten


def count_first(graph: Graph) -> None:
    """Rewrite `graph`, whose shapes may be symbolic, in place."""
    for node in list(graph.nodes):
        if node.target not in COUNTED:
            continue
        if node.meta.get("unbacked_bindings"):
            _rewrite(graph, node)
        elif node.target is not aten.index.Tensor:
            _make_empty(graph, node)


def _rewrite(graph: Graph, node: Node) -> None:
    size = _unknown_size(node)
    if size is None or _is_refused(node):
        return
    with graph.inserting_before(node):
        result = COUNTED[node.target](_Nodes(graph, node, size), *node.args, **node.kwargs)
    _replace(graph, node, result)


def _is_refused(node: Node) -> bool:
    """Whether eager raises for such operands, as it then does where the node is: on the host."""
    args, kwargs = map_arg((node.args, node.kwargs), _stand_in)
    if not tells_on_zeros(node.target, args):
        return False
    return operands.error_of_zeros(node.target, args, kwargs) is not None


def _stand_in(operand: Node) -> torch.Tensor:
    """A tensor of the operand's dtype; 1 stands for a size that is not known."""
    value = operand.meta["val"]
    sizes = [1 if is_symbolic(size) else size for size in value.shape]
    return torch.empty(sizes, dtype=value.dtype, device="meta")


def _make_empty(graph: Graph, node: Node) -> None:
    """Of an empty tensor, PyTorch infers shapes without data: nothing is to be computed."""
    operand = node.args[0]
    values = output_values(node)
    assert isinstance(operand, Node)
    if any(value.numel() != 0 for value in values):
        return

    def empty(value: torch.Tensor) -> Node:
        return fx.call(graph, aten.new_empty.default, operand, list(value.shape), dtype=value.dtype)

    with graph.inserting_before(node):
        made = [empty(value) for value in values]
    _replace(graph, node, made[0] if isinstance(node.meta["val"], torch.Tensor) else made)


def _unknown_size(node: Node) -> torch.SymInt | None:
    """The size of the first result that depends on data, and on no size of an operand."""
    known = {symbol for operand in node.all_input_nodes for symbol in _symbols(operand)}
    first, *_ = output_values(node)
    sizes: list[Any] = [size for size in first.shape if is_symbolic(size)]
    return next((size for size in sizes if not size.node.expr.free_symbols <= known), None)


def _symbols(operand: Node) -> set[Any]:
    sizes: list[Any] = [
        size for size in getattr(operand.meta["val"], "shape", ()) if is_symbolic(size)
    ]
    return set().union(*(size.node.expr.free_symbols for size in sizes))


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
    """Steps as nodes, in the place of `origin`, of whose result `size` is the unknown size."""

    def __init__(self, graph: Graph, origin: Node, size: torch.SymInt) -> None:
        self._graph = graph
        self._trace = origin.meta.get("stack_trace")
        self._size = size

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        node = fx.call(self._graph, op, *args, **kwargs)
        value = self._traced(node).meta["val"]
        if isinstance(value, torch.Tensor):
            return node
        return tuple(
            self._traced(fx.call(self._graph, operator.getitem, node, at))
            for at in range(len(value))
        )

    def value(self, operand: Node) -> torch.Tensor:
        return operand.meta["val"]

    def number(self, count: Node, complaint: str) -> Node:
        return self._step(host_ops.number, self._size, count, complaint)

    def leading(self, whole: Node, count: Node, dim: int = 0, transposed: bool = False) -> Node:
        value = whole.meta["val"]
        shape = [self._size if at == dim else n for at, n in enumerate(value.shape)]
        part = value.new_empty(shape)
        return self._step(
            host_ops.leading, part.t() if transposed else part, whole, count, dim, transposed
        )

    def _step(self, step: Any, value: Any, *args: Any) -> Node:
        node = self._traced(self._graph.call_function(step, args))
        node.meta["val"] = value
        return node

    def _traced(self, node: Node) -> Node:
        node.meta["stack_trace"] = self._trace
        return node
