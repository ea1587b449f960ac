"""Steps that XLA merges into one of other numbers -> the same, with a barrier between them.

XLA treats floats as if they were real numbers. Of (x + a) + b it makes x + (a + b): who rounds by
adding a large constant and taking it away again gets x back. x * (a * b) of two constants is nan
where their product overflows, and log(x ** y), as y * log(|x|), a number where x ** y is negative.
x + zeros is x for it, and -0.0 where x is: here it is x + 0, which has a rule.
What differs in the last digits alone, or is finite where eager overflows, is left to XLA.

Importing this module registers an op for the barrier; lowering/rules/primitives.py lowers it.
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph.edit import call
from xla_dynamo.backend.graph.fx import is_inexact, is_view
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
BARRIER = torch.ops.xla_dynamo.optimization_barrier.default

# Ops of a tensor and a number. XLA adds the numbers of neighbours up, or multiplies them.
_SUMS = frozenset(
    op for packet in (aten.add, aten.sub, aten.rsub) for op in (packet.Tensor, packet.Scalar)
)
QUOTIENTS = frozenset({aten.div.Tensor, aten.div.Scalar})
_PRODUCTS = frozenset({aten.mul.Tensor, aten.mul.Scalar}) | QUOTIENTS
_STEPS = _SUMS | _PRODUCTS
# A constant of the graph -> where its number stands.
_FILLED: dict[Any, int] = {
    aten.full.default: 1,
    aten.full_like.default: 1,
    aten.scalar_tensor.default: 0,
}
_ZEROS = frozenset({aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default})
_POWERS = frozenset({aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar})
_ROOTS = frozenset({aten.rsqrt.default})  # the log of -inf, at -0.0, is nan
_EXPONENTIALS = frozenset({aten.exp.default, aten.exp2.default})
# An op -> those of whose results it must not be merged with.
_PAIRS: dict[Any, frozenset[Any]] = {
    aten.log.default: _ROOTS | _POWERS,
    **dict.fromkeys(_POWERS, _EXPONENTIALS),  # exp(x * y) is nan for an infinite x and y = 0
}
_TRANSPARENT = frozenset({aten.neg.default, aten.clone.default})
# Products of a few factors within these bounds neither overflow nor vanish.
_LEAST, _MOST = 2.0**-24, 2.0**24


def forbid_reassociation(graph: Graph, context: Context) -> bool:
    """Put barriers into `graph`, in place."""
    changed = False
    for node in graph.nodes:
        changed |= _add_number_zero(graph, node)
        operand = _mergeable(node)
        if operand is not None:
            with graph.inserting_before(node):
                barrier = call(graph, BARRIER, operand, like=node)
            node.replace_input_with(operand, barrier)
            changed = True
    return changed


def _add_number_zero(graph: Graph, node: Node) -> bool:
    """Add the number 0 in the place of zeros that `graph` makes."""
    if node.target is not aten.add.Tensor or node.kwargs:
        return False
    out = node.meta["val"]
    if not is_inexact(out):
        return False
    for x, zeros in (node.args, node.args[::-1]):
        if isinstance(x, Node) and isinstance(zeros, Node) and _is_of_zeros(zeros):
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


def _is_of_zeros(node: Node) -> bool:
    """Whether every number is known to be 0, and no -0.0."""
    number = constant(node)
    if number != 0 or origin(node, {aten.clone.default}).target is aten.neg.default:
        return False
    return isinstance(number, complex) or math.copysign(1, number) > 0


def _mergeable(node: Node) -> Node | None:
    """The operand whose computation XLA would merge with `node`, to other numbers."""
    inner = _PAIRS.get(node.target)
    if inner:
        operand = node.args[0]
        return operand if isinstance(operand, Node) and origin(operand).target in inner else None
    step = _step(node)
    if step is None:
        return None
    operand, size = step
    source = origin(operand)
    before = _step(source)
    if before is None or (node.target in _SUMS) != (source.target in _SUMS):
        return None
    shows = _cancel if node.target in _SUMS else _exceed
    return operand if shows(before[1], size) else None


def _step(node: Node) -> tuple[Node, float] | None:
    """Operand and magnitude of the constant, if `node` is a sum or a product of floats with one."""
    if node.target not in _STEPS or len(node.args) < 2 or not is_inexact(node.meta["val"]):
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


def _exceed(first: float, second: float) -> bool:
    return not all(size == 0 or _LEAST <= size <= _MOST for size in (first, second))


def constant(operand: Any) -> Any:
    """The number that an operand is, or is filled with."""
    if not isinstance(operand, Node):
        return operand
    source = origin(operand)
    if source.target in _ZEROS:
        return 0
    place = _FILLED.get(source.target)
    number = None if place is None else source.args[place]
    return None if isinstance(number, Node) else number


def origin(node: Node, through: Container[Any] = _TRANSPARENT) -> Node:
    """What `node` is a view of, but for its sign: XLA moves constants past both."""
    while node.op == "call_function" and (node.target in through or is_view(node)):
        source = node.args[0] if node.args else None
        if not isinstance(source, Node):
            break
        node = source
    return node


def _as_node(operand: Any) -> Node:
    assert isinstance(operand, Node)
    return operand
