"""Subtract from a number, not from a tensor of it.

PyTorch's C++ writes `1 - x` as a new tensor, filled with 1, less `x`; recorded op by op it is in
SiLU's gradient. PyTorch's kernels would make that tensor, which has not the order of memory of `x`:
with channels last each element would be read across the cache (2 million elements: 2.8 ms, so 0.7).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
_DTYPES = (torch.float32, torch.float64)  # the kernels of others round elsewhere


def subtract_from_numbers(graph: Graph, context: Context) -> bool:
    """Rewrite, in place, each difference of a filled tensor and another of its size and dtype."""
    if fx.shape_env(graph) is not None:  # sizes are compared
        return False
    changed = False
    for node in graph.find_nodes(op="call_function", target=aten.sub.Tensor):
        arguments: Any = node.args
        filled, x = arguments
        if node.kwargs or not isinstance(x, Node) or not _is_filled(filled):
            continue
        number, (value, other) = filled.args[1], (each.meta["val"] for each in (filled, x))
        if value.shape == other.shape and _is_exact(number, value.dtype, other.dtype):
            with graph.inserting_before(node):
                new = edit.call(graph, aten.rsub.Scalar, x, number, like=node)
            edit.substitute_made(node, new)
            changed = True
    return changed


def _is_filled(node: Any) -> bool:
    return isinstance(node, Node) and node.target is aten.fill.Scalar


def _is_exact(number: Any, dtype: torch.dtype, other: torch.dtype) -> bool:
    """Whether a tensor of this dtype has just this number, and the difference has its dtype."""
    if dtype != other or dtype not in _DTYPES or type(number) not in (int, float):
        return False
    return torch.tensor(number, dtype=dtype, device="cpu").item() == number
