"""On the CPU, a sum or mean over the first dimensions of many columns is a product with ones.

YNNPACK of jaxlib 0.10.2 and 0.11.0 adds up rows of more than 16,384 columns in 20 to 70 times the
time of a loop. So the gradient of what a batch shares is computed, as that of a transformer's
position embedding. Milliseconds on two cores of a Cascade Lake, float32:

| rows, columns | YNNPACK | product with ones |
|---|---|---|
| 8, 32768 | 2.8 | 0.2 |
| 2, 65536 | 3.1 | 0.2 |
| 64, 65536 | 71 | 0.8 |
| 512, 20000 | 77 | 1.9 |
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import call, insert, substitute_made
from xla_dynamo.backend.jax_adapter import VERSION
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
_IS_SLOW = (0, 10, 2) <= VERSION[:3] <= (0, 11, 0)
_MOST_COLUMNS = 16384
_DTYPES = (torch.float32, torch.float64)


def sum_by_products(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, with static shapes, in place."""
    if context.target.platform != "cpu" or not _IS_SLOW:
        return False
    changed = False
    for node in fx.calls(graph):
        if node.target not in (aten.sum.dim_IntList, aten.mean.dim):
            continue
        given = fx.arguments(node)
        summed = given["input"]
        rows = _rows(summed.meta["val"], given["dim"])
        if rows is not None and node.meta["val"].dtype == summed.meta["val"].dtype:
            with graph.inserting_before(node):
                found = _product(graph, node, summed, rows)
                if node.target is aten.mean.dim:
                    found = call(graph, aten.div.Scalar, found, rows, like=node)
            substitute_made(node, found)
            changed = True
    return changed


def _rows(value: torch.Tensor, dims: Any) -> int | None:
    """How many rows are added up, if what is summed is the first dimensions of many columns."""
    if value.dim() < 2 or value.dtype not in _DTYPES:
        return None
    summed = sorted(dim % value.dim() for dim in dims or ())
    if summed != list(range(len(summed))):
        return None
    rows = math.prod(value.shape[: len(summed)])
    return rows if rows > 1 and value.numel() > rows * _MOST_COLUMNS else None


def _product(graph: Graph, node: Node, summed: Node, rows: int) -> Node:
    value = summed.meta["val"]
    shape, row = [rows, value.numel() // rows], [1, rows]

    def made(op: Any, *args: Any, size: list[int], **options: Any) -> Node:
        return insert(graph, op, args, options, like=node, value=value.new_empty(size))

    ones = made(aten.full.default, row, 1, size=row, dtype=value.dtype, device=value.device)
    matrix = made(aten.view.default, summed, shape, size=shape)
    total = call(graph, aten.mm.default, ones, matrix, like=node)
    return call(graph, aten.view.default, total, list(node.meta["val"].shape), like=node)
