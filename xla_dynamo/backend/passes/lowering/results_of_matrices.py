"""On a TPU, new weights of 1x1 convolutions leave as one row of numbers.

A float32 result of shape [rows, columns, 1, 1] is laid out row by row there, and what computes it
has tiles of eight rows. XLA:TPU copies one to the other row by row: for the weights and momenta of
ResNet-50 in mixed precision two fifths of a step's cycles. By way of one dimension, whose layout is
that of the rows, it takes a seventh of them. A barrier keeps XLA from joining both shapes. The
values are the same.
"""

from __future__ import annotations

import math

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import call
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
_BARRIER = torch.ops.xla_dynamo.optimization_barrier.default
_LANES = 128
_LEAST = 2**16  # numbers, from which on the copies count


def return_matrices_as_rows(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, with static shapes, in place."""
    if context.target.platform != "tpu" or context.partitioned:
        return False
    output = graph.output_node()
    flat: dict[Node, Node] = {}
    for node in fx.results(graph):
        if isinstance(node, Node) and node.op == "call_function" and _is_matrix(node.meta["val"]):
            with graph.inserting_before(output):
                row = call(graph, aten.view.default, node, [-1], like=node)
                row = call(graph, _BARRIER, row, like=node)
                shape = list(node.meta["val"].shape)
                flat[node] = call(graph, aten.view.default, row, shape, like=node)
    output.args = torch.fx.map_arg(output.args, lambda node: flat.get(node, node))
    return bool(flat)


def _is_matrix(value: object) -> bool:
    """Whether it is [rows, columns, 1, ...] in float32, of whole lanes."""
    if not isinstance(value, torch.Tensor) or value.dim() < 3 or value.dtype != torch.float32:
        return False
    rows, columns, *others = value.shape
    is_large = rows > 1 and value.numel() >= _LEAST
    return is_large and columns % _LANES == 0 and math.prod(others) == 1
