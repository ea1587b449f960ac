"""Ops that stay calls by their name, for whoever runs the StableHLO that is exported.

As in torch_xla: `stablehlo.custom_call @namespace.op.overload`, on the op's tensors in their order.
Numbers and other arguments are no part of the call.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

import jax
import torch
from torch._ops import OpOverload
from torch.fx import Graph
from torch.utils import _pytree as pytree

from . import dtypes
from .nodes import op_of
from .registry import Rule, rule_of

_API_VERSION = 1  # as StableHLO's text leaves out: the one that all readers know


def rules_of(graph: Graph, namespaces: Collection[str]) -> dict[Any, Rule]:
    """A rule for each op of these namespaces in `graph` that has none."""
    ops = {op_of(node) for node in graph.nodes if node.op == "call_function"}
    named = [op for op in ops if isinstance(op, OpOverload) and op.namespace in namespaces]
    return {op: Rule(functools.partial(_call, op)) for op in named if rule_of(op) is None}


def _call(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    operands = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, jax.Array)]
    args, kwargs = pytree.tree_map_only(jax.Array, _meta, (args, kwargs))
    results = op(*args, **kwargs)
    alone = isinstance(results, torch.Tensor)
    shapes = [
        jax.ShapeDtypeStruct(tuple(value.shape), dtypes.to_numpy(value.dtype))
        for value in ([results] if alone else results)
    ]
    call = jax.ffi.ffi_call(str(op), shapes, custom_call_api_version=_API_VERSION)
    made = call(*operands)
    return made[0] if alone else tuple(made)


def _meta(array: jax.Array) -> torch.Tensor:
    return torch.empty(array.shape, dtype=dtypes.to_torch(array.dtype), device="meta")
