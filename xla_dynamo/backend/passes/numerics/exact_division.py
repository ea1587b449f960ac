"""Optimization barriers around divisors, so that XLA divides and takes no reciprocal.

XLA rewrites x / c, and x / y where y has one element, to x * (1 / c), which rounds twice: 49 / 49
becomes 0.9999999999999999, and its floor 0. Where 1 / c is below the smallest normal number it is
flushed to 0, and for a complex c = 0 it is nan. XLA cannot see through a barrier in the shape of
the quotient. On a CPU, barriers are removed before fusion, and a division is left; on other
platforms they stay, so that only divisors whose reciprocal is 0 or nan get one. On a CPU, XLA must
not rewrite x / y / z to x / (y * z) either.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from xla_dynamo.backend.graph.constants import base, constant
from xla_dynamo.backend.graph.edit import call, substitute
from xla_dynamo.backend.graph.fx import bases, is_inexact
from xla_dynamo.backend.passes.contract import Context

from .no_reassociation import BARRIER, QUOTIENTS

aten = torch.ops.aten

# A division: its overload that takes a tensor. (The rule of floor division computes remainders.)
_DIVISIONS: dict[Any, Any] = {
    **dict.fromkeys(QUOTIENTS, aten.div.Tensor),
    aten.div.Tensor_mode: aten.div.Tensor_mode,
    aten.div.Scalar_mode: aten.div.Tensor_mode,
}


def keep_exact_division(graph: Graph, context: Context) -> bool:
    """Put barriers around divisors that are constants or have one element, in `graph`, in place."""
    on_cpu, changed = context.target.platform == "cpu", False
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.target not in _DIVISIONS or not is_inexact(value):
            continue
        if on_cpu:
            changed |= _separate(graph, node)
        # 16-bit quotients are computed in float32: what is lost there is rounded away.
        if node.kwargs.get("rounding_mode") == "floor" or value.dtype.itemsize == 2:
            continue
        divisor = constant(node.args[1])
        if divisor is None:
            hides = on_cpu and _is_one_element(node.args[1], value)
        elif on_cpu and not value.dtype.is_complex:
            hides = not _has_reciprocal(divisor, value.dtype)
        else:
            hides = _has_no_normal_reciprocal(divisor, value.dtype)
        if hides:
            _hide(graph, node, node.args[1] if divisor is None else divisor)
            changed = True
    return changed


def _separate(graph: Graph, node: Node) -> bool:
    """Keep XLA from rewriting x / y / z to x / (y * z), whose product may overflow."""
    found = [n for n in node.all_input_nodes if base(n).target in _DIVISIONS]
    for operand in found:
        with graph.inserting_before(node):
            node.replace_input_with(operand, call(graph, BARRIER, operand, like=node))
    return bool(found)


def _is_one_element(divisor: Node, quotient: Tensor) -> bool:
    """Whether the elements of a real quotient are all divided by the same element of a tensor."""
    if quotient.dtype.is_complex or quotient.numel() == 1:
        return False
    return any(n.meta["val"].numel() == 1 for n in bases(divisor, (aten._to_copy.default,)))


def _has_reciprocal(value: float, dtype: torch.dtype) -> bool:
    """Whether 1 / `value` is exact in `dtype`: for powers of two, 0 and infinities."""
    if value == 0 or not math.isfinite(value):
        return True
    return abs(math.frexp(value)[0]) == 0.5 and not _has_no_normal_reciprocal(value, dtype)


def _has_no_normal_reciprocal(value: complex, dtype: torch.dtype) -> bool:
    limits = torch.finfo(dtype)
    return 1 / limits.tiny < abs(value) <= limits.max or (dtype.is_complex and value == 0)


def _hide(graph: Graph, node: Node, divisor: Any) -> None:
    """Divide by `divisor`, a number or a node with one element in all, behind a barrier.

    An expanded numerator is divided by a number before it is expanded.
    """
    numerator: Any = node.args[0]
    value: Tensor = node.meta["val"]
    is_expanded = numerator.target is aten.expand.default and not isinstance(divisor, Node)
    numerator = numerator.args[0] if is_expanded else numerator
    shape = list(numerator.meta["val"].shape if is_expanded else value.shape)
    options = {"dtype": value.dtype, "device": value.device}
    with graph.inserting_before(node):
        new: Any = partial(call, graph, like=node)
        if isinstance(divisor, Node):
            given: Tensor = divisor.meta["val"]
            # A 0-d divisor may be on the CPU where the quotient is not.
            if (given.dtype, given.device) != (value.dtype, value.device):
                divisor = new(aten._to_copy.default, divisor, **options)
            filled = new(aten.expand.default, divisor, shape)
        else:
            model = new(aten.expand.default, numerator, shape)
            filled = new(aten.full_like.default, model, divisor, **options)
        quotient = new(_DIVISIONS[node.target], numerator, new(BARRIER, filled), **node.kwargs)
        if is_expanded:
            quotient = new(aten.expand.default, quotient, list(value.shape))
    substitute(node, quotient)
