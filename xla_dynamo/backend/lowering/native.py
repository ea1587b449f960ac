"""The ops that torch-mlir lowers right, and the dtypes for which a test shows it.

An op is listed only where tests/backend/lowering/test_native.py compares it with eager through
torch-mlir alone. Every other op goes to its JAX rule.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

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


def _to_bool(dtypes: frozenset[torch.dtype]) -> Predicate:
    """All operands have one and the same dtype, out of `dtypes`; the result is bool."""

    def holds(node: Node) -> bool:
        found = {value.dtype for value in _tensors(node)}
        return len(found) == 1 and found <= dtypes

    return holds


def _mask(node: Node) -> bool:
    """A bool condition and two operands of the result's dtype."""
    values = _tensors(node)
    return len(values) == 3 and {v.dtype for v in values[1:]} == {node.meta["val"].dtype}


def _no_empty(node: Node) -> bool:
    return all(value.numel() > 0 for value in (*_tensors(node), node.meta["val"]))


def _no_zero(node: Node) -> bool:
    """No number is 0: sums with 0 and bounds of 0 have rules, for the signs of their zeros.

    An `alpha` of 0 is negated in eager for a difference, where the integer 0 stays 0.
    """
    return not any(operand == 0 for operand in (*node.args, *node.kwargs.values()))


def _numbers_wide(node: Node) -> bool:
    """No number beside 16 bits, to which torch-mlir rounds it: 1e5 is inf in float16."""
    return _is_wide(node) or all(isinstance(arg, Node) for arg in node.args)


def _scaled_wide(node: Node) -> bool:
    """No `alpha` in 16 bits: torch-mlir rounds the product, eager the sum only."""
    return _is_wide(node) or _is_one(node, "alpha")


def _some_dims(node: Node) -> bool:
    """Not 0-d: torch-mlir crashes or loops on a dimension of a scalar."""
    return all(value.dim() > 0 for value in _tensors(node))


def _several_summands(node: Node) -> bool:
    """More than one summand: the sum of one has a rule, which begins with 0 as eager does."""
    (summands,) = _tensors(node)
    return summands.numel() > node.meta["val"].numel()


def _no_beta(node: Node) -> bool:
    """torch-mlir multiplies by beta=0, where the summand must not count: not even its nan."""
    return _is_one(node, "beta")


def _is_wide(node: Node) -> bool:
    return node.meta["val"].dtype not in _FLOATS - _WIDE


def _is_one(node: Node, factor: str) -> bool:
    return bool(node.kwargs.get(factor, 1) == 1)


_BOOL = frozenset({torch.bool})

# (ops of aten, when torch-mlir is right: where all of these hold)
_TABLE: tuple[tuple[str, *tuple[Predicate, ...]], ...] = (
    # Element-wise
    ("neg.default abs.default", _of(_NUMBERS)),
    ("mul.Tensor", _of(_NUMBERS), _numbers_wide),
    ("add.Tensor sub.Tensor", _of(_NUMBERS), _scaled_wide, _no_zero),
    # The rule divides 16-bit floats in float32: a reciprocal in 16 bits is too coarse.
    ("div.Tensor", _of(_WIDE)),
    ("exp.default log.default log1p.default expm1.default", _of(_FLOATS)),
    ("sqrt.default rsqrt.default reciprocal.default", _of(_FLOATS)),
    ("tanh.default sigmoid.default sin.default cos.default", _of(_FLOATS)),
    ("floor.default ceil.default", _of(_FLOATS)),
    ("clamp.default", _of(_FLOATS), _no_zero),
    ("maximum.default minimum.default", _of(_NUMBERS)),
    # torch-mlir folds x == x to True, also where x is nan.
    ("eq.Tensor", _to_bool(_INTS)),
    ("ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor", _to_bool(_NUMBERS)),
    ("isnan.default", _to_bool(_FLOATS)),
    ("logical_not.default logical_and.default logical_or.default", _of(_BOOL)),
    ("bitwise_and.Tensor", _of(_BOOL)),
    ("where.self", _mask),
    # Products
    ("mm.default bmm.default", _of(_FLOATS), _no_empty),
    ("addmm.default", _of(_FLOATS), _no_empty, _no_beta),
    # Reductions
    ("sum.dim_IntList", _of(_WIDE), _no_empty, _some_dims, _several_summands),
    ("amax.default amin.default", _of(_FLOATS), _no_empty, _some_dims),
    ("_softmax.default _log_softmax.default", _of(_WIDE), _no_empty, _some_dims),
    # Shapes and positions
    ("view.default permute.default unsqueeze.default squeeze.dim expand.default", _of(_ALL)),
    ("clone.default cat.default select.int flip.default constant_pad_nd.default", _of(_ALL)),
    ("slice.Tensor", _of(_ALL), _no_empty),
)

NATIVE: dict[torch._ops.OpOverload, list[Predicate]] = {
    attrgetter(op)(aten): when for ops, *when in _TABLE for op in ops.split()
}


def is_native(node: Node) -> bool:
    """Whether torch-mlir is known to lower this node right."""
    predicates = NATIVE.get(node.target)  # type: ignore[arg-type]
    return predicates is not None and all(holds(node) for holds in predicates)
