"""Materialize what is written to a slice of a tensor that it reads elsewhere.

XLA writes a slice in place, in one loop with the computation of what is written, unless it sees
that the loop still reads what it overwrites. It does not see that through a reshape
(InstructionFusion's ShouldFuseInPlaceOp, in jaxlib 0.10.2 on the CPU): in
`v = x.view(4, 2); v[:2] += v[:2].flip(0)`, the second row is computed from the new first one. Where
each element depends on itself alone, as in `v[:2] += 1`, one loop is right, and stays.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from xla_dynamo.backend.graph.edit import call
from xla_dynamo.backend.graph.fx import arguments, is_view
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten

# An op that writes to a slice of its first argument: the op that reads that slice. Their other
# arguments are the same, but for what is written.
_READER: dict[Any, Any] = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
    aten.as_strided_scatter.default: aten.as_strided.default,
    torch.ops.xla_dynamo.dynamic_update.default: torch.ops.xla_dynamo.dynamic_slice.default,
}
# Element by element, like pointwise ops. (The result of copy depends on its second operand alone.)
_COPIES = frozenset({aten.clone.default, aten._to_copy.default, aten.copy.default})


def materialize_inplace_sources(graph: Graph, context: Context) -> bool:
    """Materialize the sources of writes that might read what was overwritten."""
    changed = False
    order = {node: position for position, node in enumerate(graph.nodes)}
    for writer in list(graph.nodes):
        if writer.target in _READER and _reads_elsewhere(writer, order):
            source = writer.args[1]
            with graph.inserting_before(writer):
                first = call(graph, torch.ops.xla_dynamo.materialize.default, source, like=writer)
            order[first] = order[writer]
            writer.args = (writer.args[0], first, *writer.args[2:])
            changed = True
    return changed


def _reads_elsewhere(writer: Node, order: dict[Node, int]) -> bool:
    """Whether an element that is written depends on other elements of the memory written to."""
    memory = _memory(writer.args[0])
    earliest = min(order[node] for node in memory)
    # A node, and the writers to slices within slices whose elements its own correspond to, if any.
    pending: list[tuple[Any, tuple[Node, ...]]] = [(writer.args[1], (writer,))]
    visited: set[tuple[Node, tuple[Node, ...]]] = set()
    while pending:
        node, writers = pending.pop()
        if order[node] < earliest or (node, writers) in visited:
            continue
        visited.add((node, writers))
        if writers and _reads_what_is_written(node, writers[-1]):
            if len(writers) > 1:
                pending.append((node.args[0], writers[:-1]))
        elif node in memory:
            return True
        elif writers and node.target in _READER:
            pending += [(node.args[0], writers), (node.args[1], (*writers, node))]
        else:
            pending += [(each, writers if _is_pointwise(node) else ()) for each in _read(node)]
    return False


def _memory(target: Any) -> set[Node]:
    """`target` and the nodes with which it may share memory in XLA's program."""
    found: set[Node] = set()
    pending = [target]
    while pending:
        node = pending.pop()
        if node in found:
            continue
        found.add(node)
        # XLA may drop a pointwise op, such as x * 1.
        if is_view(node) or _is_pointwise(node):
            size = _bytes(node)
            pending += [each for each in _read(node) if _bytes(each) == size]
    return found


def _is_pointwise(node: Node) -> bool:
    return node.target in _COPIES or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _read(node: Node) -> list[Node]:
    """The operands on whose values `node` depends."""
    inputs = node.all_input_nodes
    return inputs[1:] if node.target is aten.copy.default and len(inputs) > 1 else inputs


def _bytes(node: Node) -> int | None:
    value = node.meta.get("val")
    return value.nbytes if isinstance(value, Tensor) else None


def _reads_what_is_written(node: Node, writer: Node) -> bool:
    if node.target is not _READER[writer.target] or not _is_same(node.args[0], writer.args[0]):
        return False
    (_, *read), written = arguments(node).items(), arguments(writer)
    part: Any = writer.args[1]
    same = all(written.get(name, value) == value for name, value in read)
    return same and node.meta["val"].shape == part.meta["val"].shape


def _is_same(one: Any, other: Any) -> bool:
    """Whether two nodes are one node, or the same view of one."""
    if one is other or not (isinstance(one, Node) and isinstance(other, Node)):
        return one is other
    if one.target is not other.target or not is_view(one) or one.kwargs != other.kwargs:
        return False
    return _is_same(one.args[0], other.args[0]) and one.args[1:] == other.args[1:]
