"""The ops that torch-mlir lowers right, and the dtypes for which a test shows it.

An op is listed only where tests/backend/lowering/test_native.py compares it with eager through
torch-mlir alone. Every other op goes to its JAX rule.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import Node

aten = torch.ops.aten
_FLOATS = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})
_WIDE = frozenset({torch.float32, torch.float64})
_INTS = frozenset({torch.int32, torch.int64})
_NUMBERS = _FLOATS | _INTS
_ALL = _NUMBERS | {torch.bool}

Predicate = Callable[[Node], bool]


def _tensors(node: Node) -> list[torch.Tensor]:
    values = [operand.meta.get("val") for operand in node.all_input_nodes]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _of(dtypes: frozenset[torch.dtype]) -> Predicate:
    """All operands and the result have one and the same dtype, out of `dtypes`."""

    def holds(node: Node) -> bool:
        found = {value.dtype for value in (*_tensors(node), node.meta["val"])}
        return len(found) == 1 and found <= dtypes

    return holds


def _no_empty(predicate: Predicate) -> Predicate:
    def holds(node: Node) -> bool:
        values = (*_tensors(node), node.meta["val"])
        return predicate(node) and all(value.numel() > 0 for value in values)

    return holds


def _no_zero(predicate: Predicate) -> Predicate:
    """No number is 0: sums with 0 and bounds of 0 have rules, for the signs of their zeros.

    An `alpha` of 0 is negated in eager for a difference, where the integer 0 stays 0.
    """

    def holds(node: Node) -> bool:
        numbers = (*node.args, *node.kwargs.values())
        return predicate(node) and not any(operand == 0 for operand in numbers)

    return holds


def _numbers_wide(predicate: Predicate) -> Predicate:
    """No number beside 16 bits, to which torch-mlir rounds it: 1e5 is inf in float16."""

    def holds(node: Node) -> bool:
        wide = node.meta["val"].dtype not in _FLOATS - _WIDE
        return predicate(node) and (wide or all(isinstance(arg, Node) for arg in node.args))

    return holds


def _scaled_wide(predicate: Predicate) -> Predicate:
    """No `alpha` in 16 bits: torch-mlir rounds the product, eager the sum only."""

    def holds(node: Node) -> bool:
        wide = node.meta["val"].dtype not in _FLOATS - _WIDE
        return predicate(node) and (wide or _is_one(node, "alpha"))

    return holds


def _some_dims(predicate: Predicate) -> Predicate:
    """Not 0-d: torch-mlir crashes or loops on a dimension of a scalar."""

    def holds(node: Node) -> bool:
        return predicate(node) and all(value.dim() > 0 for value in _tensors(node))

    return holds


def _several_summands(predicate: Predicate) -> Predicate:
    """More than one summand: the sum of one has a rule, which begins with 0 as eager does."""

    def holds(node: Node) -> bool:
        (summands,) = _tensors(node)
        return predicate(node) and summands.numel() > node.meta["val"].numel()

    return holds


def _no_beta(predicate: Predicate) -> Predicate:
    """torch-mlir multiplies by beta=0, where the summand must not count: not even its nan."""
    return lambda node: predicate(node) and _is_one(node, "beta")


def _is_one(node: Node, factor: str) -> bool:
    return bool(node.kwargs.get(factor, 1) == 1)


def _mask(node: Node) -> bool:
    """A bool condition and two operands of the result's dtype."""
    values = _tensors(node)
    return len(values) == 3 and {v.dtype for v in values[1:]} == {node.meta["val"].dtype}


def _to_bool(dtypes: frozenset[torch.dtype]) -> Predicate:
    def holds(node: Node) -> bool:
        found = {value.dtype for value in _tensors(node)}
        return len(found) == 1 and found <= dtypes

    return holds


_BOOL = frozenset({torch.bool})

# (ops, when torch-mlir is right)
_TABLE: tuple[tuple[tuple[torch._ops.OpOverload, ...], Predicate], ...] = (
    # Element-wise
    (
        (aten.neg.default, aten.abs.default),
        _of(_NUMBERS),
    ),
    ((aten.mul.Tensor,), _numbers_wide(_of(_NUMBERS))),
    ((aten.add.Tensor,), _no_zero(_scaled_wide(_of(_NUMBERS)))),
    ((aten.sub.Tensor,), _no_zero(_scaled_wide(_of(_NUMBERS)))),
    # The rule divides 16-bit floats in float32: a reciprocal in 16 bits is too coarse.
    ((aten.div.Tensor,), _of(_WIDE)),
    (
        (
            aten.exp.default,
            aten.log.default,
            aten.log1p.default,
            aten.expm1.default,
            aten.sqrt.default,
            aten.rsqrt.default,
            aten.reciprocal.default,
            aten.tanh.default,
            aten.sigmoid.default,
            aten.sin.default,
            aten.cos.default,
            aten.floor.default,
            aten.ceil.default,
        ),
        _of(_FLOATS),
    ),
    ((aten.clamp.default,), _no_zero(_of(_FLOATS))),
    ((aten.maximum.default, aten.minimum.default), _of(_NUMBERS)),
    # torch-mlir folds x == x to True, also where x is nan.
    ((aten.eq.Tensor,), _to_bool(_INTS)),
    (
        (
            aten.ne.Tensor,
            aten.lt.Tensor,
            aten.le.Tensor,
            aten.gt.Tensor,
            aten.ge.Tensor,
        ),
        _to_bool(_NUMBERS),
    ),
    ((aten.isnan.default,), _to_bool(_FLOATS)),
    (
        (
            aten.logical_not.default,
            aten.logical_and.default,
            aten.logical_or.default,
            aten.bitwise_and.Tensor,
        ),
        _of(_BOOL),
    ),
    ((aten.where.self,), _mask),
    # Products
    ((aten.mm.default, aten.bmm.default), _no_empty(_of(_FLOATS))),
    ((aten.addmm.default,), _no_beta(_no_empty(_of(_FLOATS)))),
    # Reductions
    ((aten.sum.dim_IntList,), _several_summands(_some_dims(_no_empty(_of(_WIDE))))),
    ((aten.amax.default, aten.amin.default), _some_dims(_no_empty(_of(_FLOATS)))),
    ((aten._softmax.default, aten._log_softmax.default), _some_dims(_no_empty(_of(_WIDE)))),
    # Shapes and positions
    (
        (
            aten.view.default,
            aten.permute.default,
            aten.unsqueeze.default,
            aten.squeeze.dim,
            aten.expand.default,
            aten.clone.default,
            aten.cat.default,
            aten.select.int,
            aten.flip.default,
            aten.constant_pad_nd.default,
        ),
        _of(_ALL),
    ),
    ((aten.slice.Tensor,), _no_empty(_of(_ALL))),
)

NATIVE: dict[torch._ops.OpOverload, Predicate] = {op: when for ops, when in _TABLE for op in ops}


def is_native(node: Node) -> bool:
    """Whether torch-mlir is known to lower this node right."""
    predicate = NATIVE.get(node.target)  # type: ignore[arg-type]
    return predicate is not None and predicate(node)
