"""Optimization barriers where XLA's algebraic simplifier would change the result of float ops.

XLA treats floats as if they were real numbers:

- (x + a) + b becomes x + (a + b): adding a large constant and subtracting it again rounds nothing.
- (x * a) * b becomes x * (a * b), which is nan where the product of the constants overflows.
- log(x ** y) becomes y * log(|x|), a number where x ** y is negative.
- x + zeros becomes x, which keeps -0.0: it is rewritten to x + 0, which has a rule of ours.

Rewrites that change only the last digits, or that give a finite result where eager overflows, are
allowed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph.constants import base, constant
from xla_dynamo.backend.graph.edit import call
from xla_dynamo.backend.graph.fx import is_inexact
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
BARRIER = torch.ops.xla_dynamo.optimization_barrier.default

# Ops of a tensor and a constant. XLA adds or multiplies the constants of two in a row.
_SUMS = frozenset(
    op for packet in (aten.add, aten.sub, aten.rsub) for op in (packet.Tensor, packet.Scalar)
)
QUOTIENTS = frozenset({aten.div.Tensor, aten.div.Scalar})
_PRODUCTS = frozenset({aten.mul.Tensor, aten.mul.Scalar}) | QUOTIENTS
_POWERS = frozenset({aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar})
# An op: the ops whose results it must not be merged with.
_PAIRS: dict[Any, frozenset[Any]] = {
    aten.log.default: _POWERS | {aten.rsqrt.default},  # rsqrt(-0.0) is -inf, whose log is nan
    # exp(x * y) is nan for an infinite x and y = 0
    **dict.fromkeys(_POWERS, frozenset({aten.exp.default, aten.exp2.default})),
}
# Products of a few factors within these bounds neither overflow nor vanish.
_LEAST, _MOST = 2.0**-24, 2.0**24


def forbid_reassociation(graph: Graph, context: Context) -> bool:
    """Put barriers into `graph`, in place."""
    changed = False
    for node in graph.nodes:
        changed |= _add_literal_zero(graph, node)
        operand = _mergeable(node)
        if operand is not None:
            with graph.inserting_before(node):
                barrier = call(graph, BARRIER, operand, like=node)
            node.replace_input_with(operand, barrier)
            changed = True
    return changed


def _add_literal_zero(graph: Graph, node: Node) -> bool:
    """Rewrite x + zeros to x + 0, converted and expanded to the shape and dtype of the sum."""
    if node.target is not aten.add.Tensor or node.kwargs:
        return False
    out = node.meta["val"]
    if not is_inexact(out):
        return False
    for x, zeros in (node.args, node.args[::-1]):
        if isinstance(x, Node) and isinstance(zeros, Node) and _is_positive_zero(constant(zeros)):
            break
    else:
        return False
    with graph.inserting_before(node):
        if x.meta["val"].dtype != out.dtype:
            x = call(graph, torch.ops.prims.convert_element_type.default, x, out.dtype, like=node)
        if x.meta["val"].shape != out.shape:
            x = call(graph, aten.expand.default, x, list(out.shape), like=node)
    node.args = (x, 0)
    return True


def _is_positive_zero(value: complex | None) -> bool:
    if value is None or value != 0:
        return False
    return all(math.copysign(1, part) > 0 for part in (value.real, value.imag))


def _mergeable(node: Node) -> Node | None:
    """The operand that XLA would merge with `node`, with another result."""
    inner = _PAIRS.get(node.target)
    if inner:
        operand = node.args[0]
        return operand if isinstance(operand, Node) and base(operand).target in inner else None
    step = _step(node)
    if step is None:
        return None
    operand, size = step
    source = base(operand)
    before = _step(source)
    if before is None or (node.target in _SUMS) != (source.target in _SUMS):
        return None
    differs = _cancel if node.target in _SUMS else _overflow
    return operand if differs(before[1], size) else None


def _step(node: Node) -> tuple[Node, float] | None:
    """The operand, and the constant's magnitude, of a float sum or product with a constant."""
    is_step = node.target in _SUMS or node.target in _PRODUCTS
    if not is_step or len(node.args) < 2 or not is_inexact(node.meta["val"]):
        return None
    first, second = (constant(operand) for operand in node.args[:2])
    if first is None and second is not None:
        return _as_node(node.args[0]), abs(second)
    is_quotient = node.target is aten.div.Tensor
    if second is None and first is not None and not is_quotient:
        return _as_node(node.args[1]), abs(first)
    return None


def _cancel(first: float, second: float) -> bool:
    return abs(first - second) <= max(first, second) / 2 > 0


def _overflow(first: float, second: float) -> bool:
    """Whether the product of two constants may overflow or vanish."""
    return not all(size == 0 or _LEAST <= size <= _MOST for size in (first, second))


def _as_node(operand: Any) -> Node:
    assert isinstance(operand, Node)
    return operand
