"""On a TPU, the weight of a 1x1 convolution is cast as the matrix that it is.

An argument of shape [rows, columns, 1, 1] is laid out row by row there, and a convolution takes
tiles of eight rows. XLA:TPU casts such a weight row by row and then makes tiles: in a step of
ResNet-50 in mixed precision a quarter of all cycles. Of a matrix it makes tiles first, and casts
those in a twentieth of the time. A barrier keeps it from joining both shapes. The values are the
same.
"""

from __future__ import annotations

import math

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import call, substitute
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
_BARRIER = torch.ops.xla_dynamo.optimization_barrier.default


def cast_as_matrices(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, with static shapes, in place."""
    if context.target.platform != "tpu":
        return False
    weights = [node for node in fx.placeholders(graph) if _is_matrix(node.meta["val"])]
    casts = [
        (user, weight) for weight in weights for user in weight.users if _narrows(user, weight)
    ]
    for cast, weight in casts:
        shape = list(weight.meta["val"].shape)
        with graph.inserting_before(cast):
            matrix = call(graph, aten.view.default, weight, shape[:2], like=cast)
            matrix = call(graph, _BARRIER, matrix, like=cast)
            narrow = call(graph, cast.target, matrix, like=cast, **cast.kwargs)
            substitute(cast, call(graph, aten.view.default, narrow, shape, like=cast))
    return bool(casts)


def _is_matrix(value: object) -> bool:
    """Whether it is [rows, columns, 1, ...]."""
    if not isinstance(value, torch.Tensor) or value.dim() < 3:
        return False
    return min(value.shape[:2]) > 1 and math.prod(value.shape[2:]) == 1


def _narrows(node: Node, weight: Node) -> bool:
    if node.target is not aten._to_copy.default:  # others may have several results
        return False
    before, after = weight.meta["val"].dtype, node.meta["val"].dtype
    is_of_floats = before.is_floating_point and after.is_floating_point
    return is_of_floats and after.itemsize < before.itemsize
