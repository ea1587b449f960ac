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

from xla_dynamo.backend.graph import edit, fx, host_ops
from xla_dynamo.backend.graph.memory_layout import is_dense, physical_order
from xla_dynamo.backend.lowering.source import location_of
from xla_dynamo.backend.passes.contract import Context
from xla_dynamo.errors import UnsupportedOp

aten = torch.ops.aten
_STRIDED = (aten.as_strided.default, aten.as_strided_copy.default)
_SCATTER = aten.as_strided_scatter.default
_CONTIGUOUS: dict[str, Any] = {"memory_format": torch.contiguous_format}
# Not views to a schema, but in eager their results share memory.
_SHARING = frozenset({aten._unsafe_view.default, aten._reshape_alias.default})


def resolve_as_strided(graph: Graph, context: Context) -> bool:
    """Rewrite each as_strided of `graph`, whose shapes are static."""
    found = [node for node in fx.calls(graph) if node.target in (*_STRIDED, _SCATTER)]
    for node in found:
        if node.target in _STRIDED:
            _resolve(graph, node)
        else:
            _resolve_scatter(graph, node)
    return bool(found)


def _resolve(graph: Graph, node: Node) -> None:
    arguments: tuple[Any, ...] = node.args
    view, size, stride, *rest = arguments
    given: Any = rest[0] if rest else node.kwargs.get("storage_offset")
    owner, absolute = _owner(view), given is not None
    offset = view.meta["val"].storage_offset() if given is None else given
    length = _length(size, stride)
    if owner.target is host_ops.memory:
        # Strides of strides: a place in memory stays one, and what is beyond the first is there.
        made: tuple[Any, ...] = owner.args
        argument, _, _, of_memory = made
        absolute = absolute or of_memory
        if absolute != of_memory or not _inside(owner, offset, length):
            owner = argument
    start = offset - owner.meta["val"].storage_offset()
    inside = 0 in size or _inside(owner, offset, length)
    if owner.meta.get("argument") and 0 not in size and (absolute or not inside):
        owner = _viewed(graph, owner, length, offset if absolute else start, absolute)
        start = 0
    elif not inside:
        node.meta["unresolved"], start = True, offset
    elif (order := physical_order(owner.meta["val"])) is not None:
        with graph.inserting_before(node):
            owner = _permuted(graph, owner, order, like=node)
    node.args, node.kwargs = (owner, size, stride, start), {}


def _resolve_scatter(graph: Graph, node: Node) -> None:
    """Write to the memory that the view is a part of; then what the view is of that.

    An argument is taken to begin where it began when this was compiled.
    """
    arguments: tuple[Any, ...] = node.args
    view, source, size, stride, *rest = arguments
    _refuse_copies(node, size, stride)
    given: Any = rest[0] if rest else node.kwargs.get("storage_offset")
    owner = _owner(view)
    base, part = owner.meta["val"], view.meta["val"]
    if any(n > 1 and step == 0 for n, step in zip(part.shape, part.stride(), strict=True)):
        with graph.inserting_before(node):  # as eager, which writes to a dense copy
            dense = edit.call(graph, aten.clone.default, view, like=node, **_CONTIGUOUS)
        node.args, node.kwargs = (dense, source, size, stride, given or 0), {}
        return
    offset = part.storage_offset() if given is None else given
    if not _inside(owner, offset, _length(size, stride)):
        node.meta["unresolved"] = True
        return
    begin = part.storage_offset() - base.storage_offset()
    start = offset - base.storage_offset()
    order = physical_order(base)
    if owner is view and order is None:
        node.args, node.kwargs = (view, source, size, stride, start), {}
        return
    with graph.inserting_before(node):
        memory = owner if order is None else _permuted(graph, owner, order, like=node)
        flat = edit.call(graph, aten.view.default, memory, [base.numel()], like=node)
        written = edit.call(graph, _SCATTER, flat, source, size, stride, start, like=node)
        view_of = (written, list(part.shape), list(part.stride()), begin)
        value = node.meta["val"]
        result = edit.insert(graph, aten.as_strided.default, view_of, {}, like=node, value=value)
    edit.substitute(node, result)


def _permuted(graph: Graph, base: Node, order: tuple[int, ...], *, like: Node) -> Node:
    return edit.call(graph, aten.permute.default, base, list(order), like=like)


def _refuse_copies(node: Node, size: Any, stride: Any) -> None:
    """Raise for a write to several elements at one place: which was changed is not known here.

    Raises:
        UnsupportedOp.
    """
    if 0 not in size and any(n > 1 and step == 0 for n, step in zip(size, stride, strict=True)):
        raise UnsupportedOp(
            f"{node.target} at {location_of(node)}: more than one element of the written-to tensor "
            "refers to a single memory location, as as_strided with a stride of 0 made it. clone() "
            "that tensor before it is written to, or write to what it was made of"
        )


def _inside(owner: Node, offset: int, length: int) -> bool:
    """Whether `length` elements from `offset` on are all in the memory of a dense `owner`."""
    base = owner.meta["val"]
    start = offset - base.storage_offset()
    return is_dense(base) and start >= 0 and start + length <= max(base.numel(), 1)


def _length(size: Any, stride: Any) -> int:
    return 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))


def _viewed(graph: Graph, argument: Node, length: int, offset: int, absolute: bool) -> Node:
    """The memory that an argument is a part of, another part at each call, as the host views it."""
    val = argument.meta["val"]
    begin = offset if absolute else val.storage_offset() + offset
    value = val.as_strided((length,), (1,), begin)
    args = (argument, length, offset, absolute)
    with graph.inserting_after(argument):
        return edit.insert(graph, host_ops.memory, args, {}, like=argument, value=value)


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
    return node.target in _SHARING or fx.is_view(node)
