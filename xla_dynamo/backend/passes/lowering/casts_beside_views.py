"""On accelerators, view tensors where they are narrow: before a cast that widens, after one that
narrows.

XLA fuses a cast with what computes or reads its operand, but not through a reshape: of
`logits.float().view(-1, classes)` it writes the logits in both dtypes. The values are the same.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph.edit import insert, substitute
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten

_VIEWS = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten.reshape.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.unsqueeze.default,
        aten.permute.default,
        aten.transpose.int,
        aten.t.default,
        aten.select.int,
        aten.slice.Tensor,
    }
)


def view_narrow_tensors(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, with static shapes, in place."""
    if context.target.platform == "cpu":
        return False
    changed = False
    for node in list(graph.nodes):
        cast = _operand(node)
        if node.target in _VIEWS and cast is not None and _growth(cast) > 0:
            _exchange(graph, node, cast)
            changed = True
    for node in reversed(list(graph.nodes)):
        cast = node
        while _growth(cast) < 0 and _is_view_for_it(view := _operand(cast)):
            cast = _exchange(graph, cast, view)
            changed = True
    return changed


def _operand(node: Node) -> Node | None:
    first = node.args[0] if node.op == "call_function" and node.args else None
    return first if isinstance(first, Node) and first.op == "call_function" else None


def _is_view_for_it(node: Node | None) -> TypeGuard[Node]:
    """Whether `node` is a view of a whole tensor, with one user."""
    if node is None or node.target not in _VIEWS or len(node.users) > 1:
        return False
    return node.meta["val"].numel() == node.all_input_nodes[0].meta["val"].numel()


def _exchange(graph: Graph, outer: Node, inner: Node) -> Node:
    """Replace outer(inner(x)), a view and a cast, by inner(outer(x)); the new node of `outer`."""
    source = inner.all_input_nodes[0]
    view, cast = (outer, inner) if outer.target in _VIEWS else (inner, outer)
    shapes = {view: view.meta["val"].shape, cast: source.meta["val"].shape}
    dtypes = {view: source.meta["val"].dtype, cast: cast.meta["val"].dtype}
    value = source.meta["val"].new_empty(shapes[outer], dtype=dtypes[outer])
    like = next((each for each in (outer, inner, source) if "stack_trace" in each.meta), outer)
    with graph.inserting_before(outer):
        args = (source, *outer.args[1:])
        first = insert(graph, outer.target, args, outer.kwargs, like=like, value=value)
        args, result = (first, *inner.args[1:]), outer.meta["val"]
        second = insert(graph, inner.target, args, inner.kwargs, like=like, value=result)
    substitute(outer, second)
    if not inner.users:
        graph.erase_node(inner)
    return first


def _growth(node: Node) -> int:
    """By how many bytes an element grows in a cast of a float; 0 for what is none."""
    if node.target is not aten._to_copy.default or "dtype" not in node.kwargs:
        return 0
    before, after = (value.meta["val"].dtype for value in (node.all_input_nodes[0], node))
    if not (before.is_floating_point and after.is_floating_point):
        return 0
    return after.itemsize - before.itemsize
