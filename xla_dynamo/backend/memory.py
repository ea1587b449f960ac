"""as_strided of a view -> as_strided of the tensor whose memory it is, in the order of its memory.

Strides and offset of as_strided address memory, which a view shares and an array has not. What a
chain of views begins with is dense as a rule, and its elements in the order of its strides are its
memory. Where they are not, the op is left to run on that tensor on the CPU.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from . import fx_graph
from .outputs import is_dense, physical_order

aten = torch.ops.aten
_STRIDED = (aten.as_strided.default, aten.as_strided_copy.default)
# Not views to a schema, but in eager their results share memory.
_SHARING = frozenset({aten._unsafe_view.default, aten._reshape_alias.default})


def resolve(graph: Graph) -> None:
    """Rewrite each as_strided of `graph`, whose shapes are static."""
    for node in fx_graph.calls(graph):
        if node.target in _STRIDED:
            _resolve(graph, node)


def _resolve(graph: Graph, node: Node) -> None:
    view, size, stride, *rest = node.args
    assert isinstance(view, Node)
    offset = rest[0] if rest else node.kwargs.get("storage_offset")
    if offset is None:
        offset = view.meta["val"].storage_offset()
    owner = _owner(view)
    whole = owner.meta["val"]
    start = offset - whole.storage_offset()
    last = start + sum((n - 1) * step for n, step in zip(size, stride, strict=True))  # type: ignore[arg-type]
    if not is_dense(whole) or start < 0 or last >= max(whole.numel(), 1):
        node.meta["unresolved"] = True
    else:
        offset = start
        order = physical_order(whole)
        if order is not None:
            with graph.inserting_before(node):
                owner = graph.call_function(aten.permute.default, (owner, list(order)))
            owner.meta = {**node.meta, "val": whole.permute(order)}
    node.args, node.kwargs = (owner, size, stride, offset), {}


def _owner(node: Node) -> Node:
    """What the chain of views that ends with `node` begins with."""
    while node.op == "call_function":
        source = node.args[0] if node.args else None
        if not isinstance(source, Node) or not _shares(node):
            break
        if node.meta["val"].dtype != source.meta["val"].dtype:
            break
        node = source
    return node


def _shares(node: Node) -> bool:
    if node.target in _SHARING:
        return True
    arguments = node.target._schema.arguments if hasattr(node.target, "_schema") else ()  # type: ignore[union-attr]
    alias = arguments[0].alias_info if arguments else None
    return alias is not None and not alias.is_write and isinstance(node.meta["val"], torch.Tensor)
