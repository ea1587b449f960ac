"""Which nodes XLA cannot take, and how the user hears of it."""

from __future__ import annotations

import torch
from torch._ops import HigherOrderOperator
from torch.fx import Graph, Node

from xla_dynamo.backend import metrics
from xla_dynamo.backend.graph import error_origin
from xla_dynamo.backend.graph.host_ops import is_host_step
from xla_dynamo.backend.options import Options
from xla_dynamo.errors import UnsupportedOp

from . import Target, is_op, reason_unsupported
from .bodies import op_of
from .source import location_of


def refused_nodes(graph: Graph, target: Target, *, mixes_floats: bool = False) -> dict[Node, str]:
    """The nodes of a graph with static shapes that cannot be lowered for `target`, and why.

    mixes_floats: floats of several dtypes may be multiplied, as torch_xla allows.
    """
    refused = {}
    for node in graph.nodes:
        if is_op(node):
            reason = reason_unsupported(node, target, mixes_floats=mixes_floats)
            if reason is not None:
                refused[node] = reason
    return refused


def report(refused: dict[Node, str], options: Options) -> None:
    """Say once per op and line what runs on the CPU and why; or raise, if that is asked for."""
    for node, reason in refused.items():
        if _is_check(node) or is_host_step(node):
            continue
        where = location_of(node)
        line = f" ({where.code})" if where.code else ""
        message = f"{op_of(node)} at {where}{line} has no lowering to XLA here: {reason}."
        if options.fallback == "error":
            error = UnsupportedOp(
                f'{message} options={{"fallback": "cpu"}} would run it on the CPU.'
            )
            error_origin.blame(error, node.meta.get("number"))
            raise error
        metrics.warn_once(
            (op_of(node), where),
            f"{message} It runs on the CPU in eager PyTorch between compiled parts; to avoid that, "
            "use another op, or add a lowering (CONTRIBUTING.md).",
            metrics.FallbackWarning,
        )


def counter_of(node: Node) -> str | None:
    """What counts the runs of a node on the CPU; None if it is no op, or computes nothing."""
    op = op_of(node)
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
