"""Divisors of one number -> the same behind a barrier, so that XLA divides by them.

Of x / c, and of x / y with a y of one element, XLA makes a product with the reciprocal, which is
rounded once more: 49 / 49 is then 0.9999999999999999, and its floor 0. Where the reciprocal is
below the least normal number it is 0, and for a complex 0 it is nan. XLA knows neither of a divisor
behind a barrier, in the shape of the quotient. On a CPU barriers are gone before XLA fuses: what is
left is a division. Elsewhere they stay, and only divisors without a reciprocal get one. Nor is
x / y / z made x / (y * z) on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from xla_dynamo.backend.graph.edit import call, substitute
from xla_dynamo.backend.graph.fx import is_inexact
from xla_dynamo.backend.passes.contract import Context

from .no_reassociation import BARRIER, QUOTIENTS, constant, origin

aten = torch.ops.aten

# A quotient -> the op by a tensor. (Quotients that are rounded down are computed by remainders.)
_DIVISIONS: dict[Any, Any] = {
    **dict.fromkeys(QUOTIENTS, aten.div.Tensor),
    aten.div.Tensor_mode: aten.div.Tensor_mode,
    aten.div.Scalar_mode: aten.div.Tensor_mode,
}


def keep_exact_division(graph: Graph, context: Context) -> bool:
    """Put barriers around divisors of one number, and between quotients, in `graph`, in place."""
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
        number = constant(node.args[1])
        if number is None:
            hides = on_cpu and _is_single(node.args[1], value)
        elif on_cpu and not value.dtype.is_complex:
            hides = not _has_reciprocal(number, value.dtype)
        else:
            hides = _is_extreme(number, value.dtype)
        if hides:
            _hide(graph, node, node.args[1] if number is None else number)
            changed = True
    return changed


def _separate(graph: Graph, node: Node) -> bool:
    """Have XLA not make x / (y * z) of x / y / z, where the product may overflow."""
    found = [n for n in node.all_input_nodes if origin(n).target in _DIVISIONS]
    for operand in found:
        with graph.inserting_before(node):
            node.replace_input_with(operand, call(graph, BARRIER, operand, like=node))
    return bool(found)


def _is_single(divisor: Any, quotient: Tensor) -> bool:
    """Whether a quotient of real numbers is by one number in the place of several."""
    if quotient.dtype.is_complex or quotient.numel() == 1:
        return False
    while divisor.meta["val"].numel() != 1:
        if divisor.target not in (aten.expand.default, aten._to_copy.default):
            return False
        divisor = divisor.args[0]
    return True


def _has_reciprocal(number: float, dtype: torch.dtype) -> bool:
    """Whether 1 / `number` is a number of `dtype`: of powers of two, 0 and infinities."""
    if number == 0 or not math.isfinite(number):
        return True
    return abs(math.frexp(number)[0]) == 0.5 and not _is_extreme(number, dtype)


def _is_extreme(number: complex, dtype: torch.dtype) -> bool:
    limits = torch.finfo(dtype)
    return 1 / limits.tiny < abs(number) <= limits.max or (dtype.is_complex and number == 0)


def _hide(graph: Graph, node: Node, divisor: Any) -> None:
    """Divide by `divisor`, a node or a number, behind a barrier; by a number before spreading."""
    numerator: Any = node.args[0]
    value: Tensor = node.meta["val"]
    is_spread = numerator.target is aten.expand.default and not isinstance(divisor, Node)
    numerator = numerator.args[0] if is_spread else numerator
    shape = list(numerator.meta["val"].shape if is_spread else value.shape)
    with graph.inserting_before(node):
        new: Any = partial(call, graph, like=node)
        hidden = new(BARRIER, _filled(new, divisor, numerator, shape, value))
        quotient = new(_DIVISIONS[node.target], numerator, hidden, **node.kwargs)
        if is_spread:
            quotient = new(aten.expand.default, quotient, list(value.shape))
    substitute(node, quotient)


def _filled(
    call: Callable[..., Node], number: Any, numerator: Node, shape: Sequence[int], quotient: Tensor
) -> Node:
    """`number`, one or a node of one element, in a shape, with the dtype and device of another."""
    options = {"dtype": quotient.dtype, "device": quotient.device}
    if not isinstance(number, Node):
        model = call(aten.expand.default, numerator, shape)
        return call(aten.full_like.default, model, number, **options)
    value: Tensor = number.meta["val"]
    # A tensor without dimensions may be on a CPU where the quotient is not.
    if (value.dtype, value.device) != tuple(options.values()):
        number = call(aten._to_copy.default, number, **options)
    return call(aten.expand.default, number, shape)
