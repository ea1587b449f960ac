"""Calls in Dynamo's graph over no dimensions, which is all -> over dimensions that are not given.

PyTorch's shape inference takes `nansum(x, [])` for no reduction, its kernel for a full one. A
scalar has the same shape either way, and where no dimensions are given, the two agree. Of other
tensors, the sizes that the program has read from the result, and that Dynamo has made constants of
its graph, are wrong (with any backend): no graph shows which, so such calls are refused.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from xla_dynamo.backend.lowering.source import location_of
from xla_dynamo.errors import UnsupportedOp

_MISTAKEN = (torch.nansum, "nansum")


def leave_out_empty_dimensions(gm: GraphModule) -> None:
    """Change the calls in place.

    Raises:
        UnsupportedOp: such a call on a tensor that has dimensions.
    """
    changed = False
    for node in gm.graph.nodes:
        if node.target in _MISTAKEN and _dimensions(node) in ([], ()):
            _refuse_dimensions(node)
            node.args = (*node.args[:1], None, *node.args[2:])
            node.kwargs = {name: value for name, value in node.kwargs.items() if name != "dim"}
            changed = True
    if changed:
        gm.recompile()


def _refuse_dimensions(node: Node) -> None:
    x = node.args[0] if node.args else node.kwargs["input"]
    assert isinstance(x, Node)
    if x.meta["example_value"].dim():
        raise UnsupportedOp(
            f"nansum over an empty list of dimensions at {location_of(node)}: torch.compile takes "
            "that for no reduction, eager PyTorch for one over all dimensions, so sizes that the "
            "program reads from the result would be wrong. Leave the dimensions out: "
            "torch.nansum(x)."
        )


def _dimensions(node: Node) -> object:
    return node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
