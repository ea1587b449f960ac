"""The ops that torch-mlir lowers right, and the dtypes for which a test shows it.

An op is listed only where tests/backend/lowering/test_native.py compares it with eager through
torch-mlir alone. Every other op goes to its JAX rule. What was found wrong, or crashes, is in
../../../docs/torch_mlir.md.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import Node

aten = torch.ops.aten
_FLOATS = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})
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


def _compare(node: Node) -> bool:
    found = {value.dtype for value in _tensors(node)}
    return len(found) == 1 and found <= _NUMBERS


def _no_empty(predicate: Predicate) -> Predicate:
    def holds(node: Node) -> bool:
        return predicate(node) and all(value.numel() > 0 for value in _tensors(node))

    return holds


NATIVE: dict[torch._ops.OpOverload, Predicate] = {
    **dict.fromkeys(
        (
            aten.neg.default,
            aten.add.Tensor,
            aten.sub.Tensor,
            aten.mul.Tensor,
        ),
        _of(_NUMBERS),
    ),
    **dict.fromkeys(
        (
            aten.div.Tensor,
            aten.exp.default,
            aten.log.default,
            aten.sqrt.default,
            aten.rsqrt.default,
            aten.tanh.default,
            aten.sigmoid.default,
            aten.sin.default,
            aten.cos.default,
            aten.relu.default,
        ),
        _of(_FLOATS),
    ),
    **dict.fromkeys((aten.mm.default, aten.bmm.default), _no_empty(_of(_FLOATS))),
    **dict.fromkeys(
        (
            aten.view.default,
            aten.permute.default,
            aten.unsqueeze.default,
            aten.expand.default,
            aten.clone.default,
        ),
        _of(_ALL),
    ),
    **dict.fromkeys(
        (
            aten.eq.Tensor,
            aten.ne.Tensor,
            aten.lt.Tensor,
            aten.le.Tensor,
            aten.gt.Tensor,
            aten.ge.Tensor,
        ),
        _compare,
    ),
}


def is_native(node: Node) -> bool:
    """Whether torch-mlir is known to lower this node right."""
    predicate = NATIVE.get(node.target)  # type: ignore[arg-type]
    return predicate is not None and predicate(node)
