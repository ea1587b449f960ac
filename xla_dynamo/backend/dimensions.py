"""Calls in Dynamo's graph over no dimensions, which is all -> over dimensions that are not given.

PyTorch's shape inference takes `nansum(x, [])` for no reduction, its kernel for a full one: what
AOTAutograd derives from the wrong shape fails, or is a wrong gradient. Where no dimensions are
given, the two agree.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

_MISTAKEN = (torch.nansum, "nansum")


def leave_out_empty_dimensions(gm: GraphModule) -> None:
    """Change the calls in place."""
    changed = False
    for node in gm.graph.nodes:
        if node.target in _MISTAKEN and _dimensions(node) in ([], ()):
            node.args = (*node.args[:1], None, *node.args[2:])
            node.kwargs = {name: value for name, value in node.kwargs.items() if name != "dim"}
            changed = True
    if changed:
        gm.recompile()


def _dimensions(node: Node) -> object:
    return node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
