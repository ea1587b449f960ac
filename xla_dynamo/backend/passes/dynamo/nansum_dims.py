"""Rewrite nansum(x, dim=[]) to nansum(x).

For an empty list eager reduces all dimensions, and torch.compile's shape inference none (seen on
torch 2.9 to 2.13). A scalar has the same shape either way. For other tensors, sizes that the
program has read from the result are wrong in Dynamo's graph already, with any backend: such calls
are an error.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.lowering.source import location_of
from xla_dynamo.backend.passes.contract import Context
from xla_dynamo.errors import UnsupportedOp


def drop_empty_nansum_dims(graph: Graph, context: Context) -> bool:
    """Drop the empty lists of dimensions.

    Raises:
        UnsupportedOp: nansum over an empty list of a tensor that has dimensions.
    """
    found = [n for n in graph.nodes if n.target in (torch.nansum, "nansum") and _dim(n) in ([], ())]
    for node in found:
        _check_scalar(node)
        node.args = (*node.args[:1], None, *node.args[2:])
        node.kwargs = {name: value for name, value in node.kwargs.items() if name != "dim"}
    return bool(found)


def _check_scalar(node: Node) -> None:
    x: Any = node.args[0] if node.args else node.kwargs["input"]
    if x.meta["example_value"].dim():
        raise UnsupportedOp(
            f"nansum over an empty list of dimensions at {location_of(node)}: torch.compile takes "
            "that for no reduction, eager PyTorch for one over all dimensions, so sizes that the "
            "program reads from the result would be wrong. Leave the dimensions out: "
            "torch.nansum(x)."
        )


def _dim(node: Node) -> object:
    return node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
