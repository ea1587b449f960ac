"""Merge ops that compute the same of the same, before what backward needs is chosen.

XLA merges them in a program; in forward and backward, which are two, one result is saved instead of
two, or computed once. PyTorch's partitioner has such a pass, which imports Inductor for it: a tenth
of the time to a process's first step.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import edit, fx, rng_keys
from xla_dynamo.backend.ops.collectives import COLLECTIVES
from xla_dynamo.backend.passes.contract import Context

_NAMESPACES = frozenset({"aten", "prims", "xla_dynamo"})


def merge_equal(graph: Graph, context: Context) -> bool:
    """Use the first of equal nodes for the others; results stay distinct tensors."""
    outputs = {_storage(node) for node in fx.results(graph) if isinstance(node, Node)} - {None}
    first: dict[Hashable, Node] = {}
    changed = False
    for node in list(graph.nodes):
        if not _is_function(node) or _storage(node) in outputs:
            continue
        same = first.setdefault(_computes(node), node)
        if same is not node:
            edit.substitute(node, same)
            changed = True
    return changed


def _is_function(node: Node) -> bool:
    """Whether the results depend on the arguments alone, and nothing else happens."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or op.namespace not in _NAMESPACES:
        return False
    writes = op._schema.is_mutable or op in COLLECTIVES or op is torch.ops.aten.empty.memory_format
    return not (writes or rng_keys.is_random(node) or "unbacked_bindings" in node.meta)


def _computes(node: Node) -> Hashable:
    """Equal for nodes that compute the same; 1, 1.0 and True are not equal, nor 0.0 and -0.0."""
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    return node.target, spec, tuple(map(_text, leaves))


def _text(leaf: Any) -> Hashable:
    return leaf if isinstance(leaf, Node) else (type(leaf), repr(leaf))


def _storage(node: Node) -> int | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return value.untyped_storage()._cdata
