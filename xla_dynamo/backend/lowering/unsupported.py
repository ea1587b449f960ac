"""Which nodes XLA cannot take, and how the user hears of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from xla_dynamo.backend import metrics
from xla_dynamo.backend.graph import error_origin, rng_keys
from xla_dynamo.backend.graph.host_ops import is_host_step
from xla_dynamo.backend.options import Options
from xla_dynamo.bookkeeping import optional
from xla_dynamo.errors import UnsupportedOp

from . import operands
from .bodies import body_of
from .native import is_native
from .nodes import is_op, op_of, output_values
from .registry import Refusal, Target
from .source import location_of

# Their strides and offset are of the operand's memory: an array has only row-major order.
_ON_STORAGE = frozenset(
    {
        torch.ops.aten.as_strided.default,
        torch.ops.aten.as_strided_copy.default,
        torch.ops.aten.as_strided_scatter.default,
    }
)
# They run the op that is their first argument on copies of what it writes to.
_WRITING = frozenset(
    {
        torch.ops.higher_order.auto_functionalized,
        torch.ops.higher_order.auto_functionalized_v2,
    }
)
DATA_DEPENDENT = Refusal(
    "The shape of its result depends on values, and XLA compiles for fixed shapes.",
    "Use a form whose shape is known, such as torch.where with a mask.",
)
_REMEDIES = {
    "no rule": "Write this step with other ops, or keep it out of the compiled function.",
    "arguments": "Call it with other arguments, or write this step with other ops.",
    "eager": "",
    "bug": "This is a bug of xla_dynamo: please report it with this message.",
}


def refused_nodes(
    graph: Graph, target: Target, *, mixes_floats: bool = False
) -> dict[Node, Refusal]:
    """The nodes of a graph with static shapes that cannot be lowered for `target`, and why.

    mixes_floats: floats of several dtypes may be multiplied, as torch_xla allows.
    """
    refused = {}
    for node in graph.nodes:
        if is_op(node):
            refusal = _refusal_of(node, target, mixes_floats)
            if refusal is not None:
                refused[node] = refusal
    return refused


def _refusal_of(node: Node, target: Target, mixes_floats: bool) -> Refusal | None:
    inputs = [operand.meta.get("val") for operand in node.all_input_nodes]
    tensors = [v for v in (*inputs, *output_values(node)) if isinstance(v, torch.Tensor)]
    for tensor in tensors:
        if tensor.layout is not torch.strided or tensor.is_nested:
            layout = "nested" if tensor.is_nested else tensor.layout
            return Refusal(
                f"One of its tensors has the layout {layout}, and XLA's arrays are dense.",
                "Convert it to a dense tensor before this op.",
            )
    if "unresolved" in node.meta or (node.target in _ON_STORAGE and not tensors[0].is_contiguous()):
        return Refusal(
            "It addresses memory by strides, and XLA does not keep this tensor in eager's layout.",
            "Call contiguous() on the tensor first, or use views such as unfold and transpose.",
        )
    error = _error_of_eager(node, inputs, mixes_floats)
    if error is not None:
        return operands.refused_by_eager(error)
    if is_native(node):
        return None
    body = body_of(node, target)
    return body if isinstance(body, Refusal) else None


def _error_of_eager(node: Node, inputs: list[Any], mixes_floats: bool) -> str | None:
    dtypes = {value.dtype for value in inputs if isinstance(value, torch.Tensor)}
    op, arguments = op_of(node), node.args
    if node.target is rng_keys.call:
        dtypes, arguments = dtypes - {rng_keys.KEY_DTYPE}, node.args[3:]
    if not isinstance(op, torch._ops.OpOverload) or operands.are_usual(op, dtypes):
        return None
    args, kwargs = map_arg((arguments, node.kwargs), lambda operand: operand.meta.get("val"))
    return operands.refusal(op, args, kwargs, mixes_floats=mixes_floats)


def report(refused: dict[Node, Refusal], options: Options) -> None:
    """Say once per op and line what runs on the CPU and why; or raise, if that is asked for."""
    for node, refusal in refused.items():
        if _is_check(node) or is_host_step(node):
            continue
        if options.fallback == "error":
            error = error_of(node, refusal)
            error_origin.blame(error, node.meta.get("number"))
            raise error
        _warn(node, refusal)


@optional(None)
def _warn(node: Node, refusal: Refusal) -> None:
    at = location_of(node)
    op = (counter_of(node) or str(_named(node))).removeprefix("fallback.")
    where = f"{at} ({at.code})" if at.code else str(at)
    metrics.record_fallback(metrics.FallbackRecord(op, where, refusal.reason, _remedy(refusal)))
    metrics.warn_once(
        (_named(node), at),
        f"{_what(node)} {refusal.reason} It runs on the CPU in eager PyTorch, between "
        f"compiled parts. {_remedy(refusal)}".rstrip(),
        metrics.FallbackWarning,
    )


def error_of(node: Node, refusal: Refusal, *, falls_back: bool = True) -> UnsupportedOp:
    """The error where nothing may run on the CPU; falls_back: an option would let it."""
    return UnsupportedOp(
        f"{_what(node)} {refusal.reason} {_remedy(refusal)}".rstrip()
        + (' With options={"fallback": "cpu"} it runs on the CPU.' if falls_back else ""),
        op=str(_named(node)),
        location=str(location_of(node)),
        reason=refusal.reason,
        remedy=_remedy(refusal),
    )


def refuse(refused: Mapping[Node, Refusal]) -> None:
    """Raise the error of the first node, for a program of which no part can run on the CPU.

    Raises:
        UnsupportedOp.
    """
    for node, refusal in refused.items():
        raise error_of(node, refusal, falls_back=False)


def _what(node: Node) -> str:
    where = location_of(node)
    line = f" ({where.code})" if where.code else ""
    return f"{_named(node)} at {where}{line} is not compiled for XLA."


def _named(node: Node) -> Any:
    """The op that the user has called: PyTorch wraps one that writes to its arguments."""
    return node.args[0] if node.target in _WRITING else op_of(node)


def _remedy(refusal: Refusal) -> str:
    return refusal.remedy or _REMEDIES[refusal.kind]


def counter_of(node: Node) -> str | None:
    """What counts the runs of a node on the CPU; None if it is no op, or computes nothing."""
    op = _named(node)
    if is_host_step(node) or _is_check(node):
        return None
    if isinstance(op, HigherOrderOperator):
        return f"fallback.higher_order::{op.name()}"
    schema = getattr(op, "_schema", None)
    return f"fallback.{schema.name}" if schema else None


def _is_check(node: Node) -> bool:
    """Whether the node computes nothing: it raises eager's error where a factorization failed."""
    check = torch.ops.aten._linalg_check_errors.default
    return node.target is torch.ops.higher_order.with_effects and node.args[1] is check


def is_data_dependent(node: Node) -> bool:
    """Whether the node's output shape, or the number it gives, depends on values."""
    if is_host_step(node):
        return True
    value = node.meta.get("val")
    fresh = node.meta.get("unbacked_bindings")
    return (
        bool(fresh)
        and node.op == "call_function"
        and isinstance(
            value, (torch.Tensor, tuple, list, torch.SymInt, torch.SymFloat, torch.SymBool)
        )
    )
