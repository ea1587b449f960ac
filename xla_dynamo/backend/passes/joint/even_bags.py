"""Embedding bags that are all of one size, as those of a table of indices are, without offsets.

For indices of two dimensions `F.embedding_bag` makes the offsets (0, n, 2 n, ...). Then the bag of
an index need neither be computed nor saved for the gradient: bags are rows of a look-up, added up.
Of DLRM, eight tables, a forward program with 41 results becomes one with 7.
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from xla_dynamo.backend.graph.edit import call, drop_unused, substitute_made
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
_FORWARD = (aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
_GRADIENT = aten._embedding_bag_backward.default
_SUMS = {0: aten.sum.dim_IntList, 1: aten.mean.dim}  # by EmbeddingBag's number of its mode
_COPIES = frozenset({aten.view.default, aten._unsafe_view.default, aten.clone.default})
# What follows the offsets, by name and default: how rows are scaled, weighted, left out.
_OPTIONS = (False, 0, False, None, False, -1)


def look_up_even_bags(graph: Graph, context: Context) -> bool:
    """Rewrite, in place, each sum and mean of bags of one size, and its gradient."""
    found = [node for op in _FORWARD for node in graph.find_nodes(op="call_function", target=op)]
    changed = [node for node in found if _rewrite(graph, node)]
    if changed:
        drop_unused(graph)
    return bool(changed)


def _rewrite(graph: Graph, node: Node) -> bool:
    arguments: tuple[Any, ...] = node.args
    weight, indices, offsets, *given = arguments
    options: tuple[Any, ...] = (*given, *_OPTIONS[len(given) :])
    mode, size = options[1], _bag_size(indices, offsets)
    gradients = _gradients(node)
    is_plain = mode in _SUMS and (*options[:1], 0, *options[2:]) == _OPTIONS and not node.kwargs
    if not is_plain or size is None or gradients is None:
        return False
    with graph.inserting_before(node):
        forward = partial(call, graph, like=node)
        bags = _table(indices, size) or forward(aten.view.default, indices, [-1, size])
        rows = forward(aten.embedding.default, weight, bags)
        out = forward(_SUMS[mode], rows, [1])
    for gradient in gradients:
        _rewrite_gradient(graph, gradient, bags, size, mode)
    for part in list(node.users):
        if part.args[1] == 0:
            substitute_made(part, out)
    return True


def _rewrite_gradient(graph: Graph, node: Node, bags: Node, size: int, mode: int) -> None:
    grad, rows = node.args[0], node.args[6]
    with graph.inserting_before(node):
        backward = partial(call, graph, like=node)
        if mode == 1:
            grad = backward(aten.div.Scalar, grad, size)
        each = backward(aten.unsqueeze.default, grad, 1)
        each = backward(aten.expand.default, each, [-1, size, -1])
        new = backward(aten.embedding_dense_backward.default, each, bags, rows, -1, False)
    substitute_made(node, new)


def _bag_size(indices: Node, offsets: Node) -> int | None:
    """The size of each bag, where the offsets are those of bags of one size that leave none out."""
    if offsets.target is not aten.arange.start_step or len(offsets.args) != 3:
        return None
    start, _, size = offsets.args
    if start != 0 or not isinstance(size, int):
        return None
    count, bags = indices.meta["val"].shape[0], offsets.meta["val"].shape[0]
    return size if statically_known_true(count == bags * size) else None


def _table(indices: Any, size: int) -> Node | None:
    """What `indices` were flattened from, if a row of it is a bag."""
    found = None
    while indices.target in _COPIES:
        indices = indices.args[0]
        shape = indices.meta["val"].shape
        if len(shape) == 2 and statically_known_true(shape[1] == size):
            found = indices
    return found


def _gradients(node: Node) -> list[Node] | None:
    """The gradients of the bags in `node`; None if something else uses more than their rows."""
    found = []
    for part in node.users:
        if part.target is not operator.getitem:
            return None
        if part.args[1] == 0:
            continue
        for user in part.users:
            if user.target is not _GRADIENT or user.args[9]:
                return None
            found.append(user)
    return list(dict.fromkeys(found))
