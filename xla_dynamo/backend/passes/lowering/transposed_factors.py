"""On the CPU, the transpose that a product begins with is made before it.

The gradient of a weight is `grad.T @ x`. XLA:CPU's fast matrix product (YNNPACK's) takes no
transposed left factor: Eigen's does, in the time of 1.1 to 2 of the other with the transpose made,
from `_LEAST_WORK` products on and in float16, bfloat16, float32 and float64 (jaxlib 0.10.2, two
cores; 1024 x 256 columns, 512 rows: 2.2 ms, so 1.6). A GPT's training step: 159 ms, so 149. A
barrier keeps XLA from taking the transpose into the product.
"""

from __future__ import annotations

import torch
from torch.fx import Graph

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import call
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
_BARRIER = torch.ops.xla_dynamo.optimization_barrier.default
_LEAST_WORK = 2e6
_LEAST_SIDE = 64  # of 4096 rows, 16 x 64 columns take 1.7 times as long with the transpose made


def transpose_before_products(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, with static shapes, in place."""
    if context.target.platform != "cpu":
        return False
    changed = False
    for node in graph.find_nodes(op="call_function", target=aten.mm.default):
        left, right = node.args
        if fx.transpose_of(left) is not None and _pays(left.meta["val"], right.meta["val"]):
            with graph.inserting_before(node):
                node.args = (call(graph, _BARRIER, left, like=left), right)
            changed = True
    return changed


def _pays(left: torch.Tensor, right: torch.Tensor) -> bool:
    rows, columns = left.shape[0], right.shape[1]
    is_large = left.numel() * columns >= _LEAST_WORK and min(rows, columns) >= _LEAST_SIDE
    return is_large and left.is_floating_point()
