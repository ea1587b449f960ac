"""FX graph of aten ops -> one StableHLO module.

    FX graph --importer (torch-mlir)--> torch dialect --passes--> StableHLO with calls
    each called node --bodies (its JAX rule)--> a StableHLO function
    linker: both -> one flat StableHLO function, ready for PJRT

An op goes to torch-mlir where `native` lists it, else to the rule in `rules/` that carries its
name. Nothing here knows about devices that run programs: that is `backend.runtime`.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from xla_dynamo.errors import UnsupportedOp

from . import importer, linker, operands, rules
from .bodies import Body, Target, body_of, has_rule, output_values
from .native import is_native
from .registry import Unsupported
from .source import Location, location_of

__all__ = [
    "REFUSED_BY_EAGER",
    "Lowered",
    "Target",
    "Unsupported",
    "is_op",
    "lower_graph",
    "reason_unsupported",
    "rules",
]

# Their strides and offset are of the operand's memory: an array has only row-major order.
_ON_STORAGE = frozenset(
    {
        torch.ops.aten.as_strided.default,
        torch.ops.aten.as_strided_copy.default,
        torch.ops.aten.as_strided_scatter.default,
    }
)
# How the reason begins where not XLA but eager PyTorch is in the way.
REFUSED_BY_EAGER = "eager PyTorch refuses its operands: "
_PRECISION = {"highest": "HIGHEST", "high": "HIGH", "medium": "DEFAULT"}


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A linked StableHLO module, and the stages before it as text."""

    module: Any
    torch_dialect: str

    def canonical(self) -> str:
        """The module as text without locations: the same program at another line is the same."""
        return linker.text(self.module, locations=False)

    @property
    def stablehlo(self) -> str:
        return linker.text(self.module)


def lower_graph(
    graph: Graph,
    target: Target,
    *,
    aliases: Mapping[int, int] = MappingProxyType({}),
    keep_text: bool = False,
    native: bool = True,
) -> Lowered:
    """Lower `graph`: placeholders and results are tensors with static shapes in meta["val"].

    `aliases` maps a placeholder's position to that of the result that replaces it and may take over
    its memory. With `native=False`, ops that have a rule do not go to torch-mlir.

    Raises:
        UnsupportedOp: a node has no lowering.
        CompileError: torch-mlir or the linker refused the graph.
    """
    calls: dict[Node, str] = {}
    bodies: dict[str, tuple[Body, Location]] = {}
    names: dict[tuple[Body, Location], str] = {}
    for node in graph.nodes:
        if not is_op(node):
            continue
        if is_native(node) and (native or not has_rule(node)):
            continue
        location = location_of(node)
        try:
            called = body_of(node, target), location
        except Unsupported as reason:
            raise UnsupportedOp(f"{node.target} at {location}: {reason}") from reason
        name = names.setdefault(called, f"{called[0].name}.{len(names)}")
        calls[node], bodies[name] = name, called
    module = importer.import_graph(graph, calls)
    torch_dialect = importer.text(module) if keep_text else ""
    artifact = importer.to_stablehlo(module, linker.stablehlo_version())
    linked = linker.link(artifact, bodies, _PRECISION[target.matmul_precision], aliases)
    return Lowered(linked, torch_dialect)


def reason_unsupported(node: Node, target: Target, *, mixes_floats: bool = False) -> str | None:
    """Why `node` cannot be lowered for `target`, or None if it can.

    mixes_floats: see `operands.refusal`.
    """
    inputs = [operand.meta.get("val") for operand in node.all_input_nodes]
    tensors = [v for v in (*inputs, *output_values(node)) if isinstance(v, torch.Tensor)]
    for tensor in tensors:
        if tensor.layout is not torch.strided or tensor.is_nested:
            return f"a tensor of layout {tensor.layout} is not an XLA array"
    if "unresolved" in node.meta or (node.target in _ON_STORAGE and not tensors[0].is_contiguous()):
        return "it addresses memory that XLA does not lay out so"
    refusal = _refusal(node, inputs, mixes_floats)
    if refusal is not None:
        return f"{REFUSED_BY_EAGER}{refusal}"
    if is_native(node):
        return None
    try:
        body_of(node, target)
    except Unsupported as reason:
        return str(reason)
    return None


def _refusal(node: Node, inputs: list[Any], mixes_floats: bool) -> str | None:
    dtypes = {value.dtype for value in inputs if isinstance(value, torch.Tensor)}
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    if operands.are_usual(dtypes) and node.target not in operands.SUMMANDS:
        return None
    args, kwargs = map_arg((node.args, node.kwargs), lambda operand: operand.meta.get("val"))
    return operands.refusal(node.target, args, kwargs, mixes_floats=mixes_floats)


def is_op(node: Node) -> bool:
    """Whether `node` computes something, other than to pick one of several results."""
    return node.op == "call_function" and node.target is not operator.getitem
