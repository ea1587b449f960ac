"""as_strided of a view -> as_strided of the tensor whose memory it is, in the order of its memory.

Strides and offset of as_strided address memory, which a view shares and an array has not. What a
chain of views begins with is dense as a rule, and its elements in the order of its strides are its
memory. Where they are not, the op is left to run on that tensor on the CPU. An argument may be a
part of a larger tensor: where a place in that is meant, the host views the memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from . import fx_graph, host_steps
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
    arguments: tuple[Any, ...] = node.args
    view, size, stride, *rest = arguments
    given: Any = rest[0] if rest else node.kwargs.get("storage_offset")
    owner = _owner(view)
    whole = owner.meta["val"]
    offset = view.meta["val"].storage_offset() if given is None else given
    start = offset - whole.storage_offset()
    length = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    inside = is_dense(whole) and start >= 0 and start + length <= max(whole.numel(), 1)
    if owner.meta.get("argument") and 0 not in size and not (inside and given is None):
        owner = _viewed(graph, owner, length, start if given is None else given, given is not None)
        start = 0
    elif not inside:
        node.meta["unresolved"], start = True, offset
    elif (order := physical_order(whole)) is not None:
        with graph.inserting_before(node):
            owner = graph.call_function(aten.permute.default, (owner, list(order)))
        owner.meta = {**node.meta, "val": whole.permute(order)}
    node.args, node.kwargs = (owner, size, stride, start), {}


def _viewed(graph: Graph, argument: Node, length: int, offset: int, absolute: bool) -> Node:
    """The memory that an argument is a part of, another part at each call, as the host views it."""
    with graph.inserting_after(argument):
        made = graph.call_function(host_steps.memory, (argument, length, offset, absolute))
    made.meta["val"] = argument.meta["val"].new_empty(length)
    return made


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
    return node.target in _SHARING or fx_graph.is_view(node)
