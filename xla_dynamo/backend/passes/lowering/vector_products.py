"""On the CPU, a product of a vector and a transposed matrix is one of the matrix and the vector.

So a linear layer multiplies at batch size 1, and a decoder for each token. XLA makes the transpose
of a matrix part of its product, but not where the other factor is a vector: it writes the matrix
anew, transposed, at every call. Milliseconds on two cores of a Cascade Lake (jaxlib 0.10.1 to
0.12.0 are alike), float32:

| | transposed | turned | eager |
|---|---|---|---|
| row times transpose of 1024 x 1024, and a bias | 1.0 | 0.3 | 0.13 |
| of 4096 x 4096 | 39 | 3.4 | 3.1 |
| transpose of 2048 x 2048 times column | 20 | 1.1 | 0.8 |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import call, substitute_made
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
_WIDE = (torch.float32, torch.float64)  # with others, a bias is added before the sum is rounded


def turn_vector_products(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, with static shapes, in place."""
    if context.target.platform != "cpu":
        return False
    changed = False
    for node in [node for node in graph.nodes if node.target in _OPERANDS and not node.kwargs]:
        bias, left, right = _OPERANDS[node.target](*node.args)
        with graph.inserting_before(node):
            factors = _turned(graph, node, left, right) if _is_exact(bias, left, right) else None
            if factors is None:
                continue
            product = call(graph, aten.mm.default, *factors, like=node)
            shape = list(node.meta["val"].shape)
            found = call(graph, aten.view.default, product, shape, like=node)
            if bias is not None:
                found = call(graph, aten.add.Tensor, found, bias, like=node)
        substitute_made(node, found)
        changed = True
    return changed


def _is_exact(bias: Node | None, left: Node, right: Node) -> bool:
    """Whether the product of the turned factors is rounded as this one is."""
    dtype = left.meta["val"].dtype
    if dtype != right.meta["val"].dtype or not dtype.is_floating_point:
        return False
    return bias is None or dtype in _WIDE


def _turned(graph: Graph, node: Node, left: Node, right: Node) -> tuple[Node, Node] | None:
    """The matrix that is not transposed and the vector, in an order in which they multiply."""
    above, below = fx.transpose_of(left), fx.transpose_of(right)
    summed = left.meta["val"].shape[-1]
    if not summed:
        return None
    if below is not None and left.meta["val"].numel() == summed:
        return below, call(graph, aten.view.default, left, [summed, 1], like=node)
    if above is not None and right.meta["val"].numel() == summed:
        return call(graph, aten.view.default, right, [1, summed], like=node), above
    return None


_OPERANDS: dict[Any, Callable[..., tuple[Node | None, Node, Node]]] = {
    aten.mm.default: lambda left, right: (None, left, right),
    aten.mv.default: lambda left, right: (None, left, right),
    aten.addmm.default: lambda bias, left, right: (bias, left, right),
}
