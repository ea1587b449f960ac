"""Rewrite as_strided of a view to as_strided of its base, in the base's order in memory.

The strides and the offset of as_strided address memory, which views share and arrays do not. The
base is dense as a rule: its elements, in the order of its strides, are the memory. Where it is not,
the op is left to run on the base on the CPU. An argument may be a view of a larger tensor: where
the op addresses memory outside of it, the host makes a view of that memory.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx, host_ops
from xla_dynamo.backend.graph.memory_layout import (
    extent,
    is_dense,
    physical_order,
    repeats_elements,
)
from xla_dynamo.backend.lowering.source import location_of
from xla_dynamo.backend.passes.contract import Context
from xla_dynamo.errors import UnsupportedOp

aten = torch.ops.aten
_STRIDED = (aten.as_strided.default, aten.as_strided_copy.default)
_SCATTER = aten.as_strided_scatter.default
# No views according to their schemas, but in eager their results share memory.
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
    taken = fx.arguments(node)
    view, size, stride = taken["input"], taken["size"], taken["stride"]
    given = taken["storage_offset"]
    base, absolute = _base(view), given is not None
    offset = view.meta["val"].storage_offset() if given is None else given
    length = extent(size, stride)
    if base.target is host_ops.memory:
        # as_strided of as_strided: the memory that the host views may be too short for this one.
        made: tuple[Any, ...] = base.args
        argument, _, _, was_absolute = made
        absolute = absolute or was_absolute
        if absolute != was_absolute or not _contains(base, offset, length):
            base = argument
    start = offset - base.meta["val"].storage_offset()
    is_inside = 0 in size or _contains(base, offset, length)
    if base.meta.get("argument") and 0 not in size and (absolute or not is_inside):
        base = _memory_of(graph, base, length, offset if absolute else start, absolute)
        start = 0
    elif is_inside:
        with graph.inserting_before(node):
            base = _in_physical_order(graph, base, like=node)
    else:
        node.meta["unresolved"], start = True, offset
    node.args, node.kwargs = (base, size, stride, start), {}


def _resolve_scatter(graph: Graph, node: Node) -> None:
    """Write to the base of the view, flattened; the result is the view of that.

    An argument is taken to begin where it began when this was compiled.
    """
    taken = fx.arguments(node)
    view, source, size, stride = (taken[n] for n in ("input", "src", "size", "stride"))
    given = taken["storage_offset"]
    if 0 not in size and repeats_elements(size, stride):
        raise UnsupportedOp(
            f"{node.target} at {location_of(node)}: more than one element of the written-to tensor "
            "refers to a single memory location, as as_strided with a stride of 0 made it. clone() "
            "that tensor before it is written to, or write to what it was made of"
        )
    base_node = _base(view)
    base, written = base_node.meta["val"], view.meta["val"]
    if repeats_elements(written.shape, written.stride()):
        with graph.inserting_before(node):  # as eager, which writes to a dense copy
            contiguous = {"memory_format": torch.contiguous_format}
            dense = edit.call(graph, aten.clone.default, view, like=node, **contiguous)
        node.args, node.kwargs = (dense, source, size, stride, given or 0), {}
        return
    offset = written.storage_offset() if given is None else given
    if not _contains(base_node, offset, extent(size, stride)):
        node.meta["unresolved"] = True
        return
    start = offset - base.storage_offset()
    if base_node is view and physical_order(base) is None:
        node.args, node.kwargs = (view, source, size, stride, start), {}
        return
    with graph.inserting_before(node):
        memory = _in_physical_order(graph, base_node, like=node)
        flat = edit.call(graph, aten.view.default, memory, [base.numel()], like=node)
        result = edit.call(graph, _SCATTER, flat, source, size, stride, start, like=node)
        begin = written.storage_offset() - base.storage_offset()
        args = (result, list(written.shape), list(written.stride()), begin)
        value = node.meta["val"]
        result = edit.insert(graph, aten.as_strided.default, args, {}, like=node, value=value)
    edit.substitute(node, result)


def _in_physical_order(graph: Graph, base: Node, *, like: Node) -> Node:
    """A dense tensor with its dimensions in the order that they have in memory."""
    order = physical_order(base.meta["val"])
    if order is None:
        return base
    return edit.call(graph, aten.permute.default, base, list(order), like=like)


def _contains(base: Node, offset: int, length: int) -> bool:
    """Whether `length` elements from `offset` on are all in the memory of a dense `base`."""
    value = base.meta["val"]
    start = offset - value.storage_offset()
    return is_dense(value) and start >= 0 and start + length <= max(value.numel(), 1)


def _memory_of(graph: Graph, argument: Node, length: int, offset: int, absolute: bool) -> Node:
    """The memory that an argument is a view of, as the host finds it at each call."""
    val = argument.meta["val"]
    begin = offset if absolute else val.storage_offset() + offset
    value = val.as_strided((length,), (1,), begin)
    args = (argument, length, offset, absolute)
    with graph.inserting_after(argument):
        return edit.insert(graph, host_ops.memory, args, {}, like=argument, value=value)


def _base(node: Node) -> Node:
    """The tensor of the same dtype that `node` is a view of, through any number of views."""
    dtype = node.meta["val"].dtype
    *_, base = itertools.takewhile(
        lambda each: each.meta["val"].dtype == dtype, fx.bases(node, _SHARING)
    )
    return base
