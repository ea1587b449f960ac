"""Lower a graph: torch-mlir takes the ops that it lowers right, JAX rules the others.

An op goes to torch-mlir where `native` lists it, else to the rule in `rules/` that carries its
name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch.fx import Graph, Node

from xla_dynamo.lazily import lazily

from . import host_kernels, linker
from .bodies import Body, body_of, has_rule
from .native import is_native
from .nodes import is_op
from .registry import Refusal, Target
from .source import Location, location_of
from .unsupported import error_of

if TYPE_CHECKING:
    from . import importer
else:  # it imports torch-mlir, without which programs on disk are found
    importer = lazily("xla_dynamo.backend.lowering.importer", globals())

_PRECISION = {"highest": "HIGHEST", "high": "HIGH", "medium": "DEFAULT"}


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A linked StableHLO module, and the stages before it as text."""

    module: Any
    torch_dialect: str

    def canonical(self) -> str:
        """The module as text without locations: the same program at another line is the same."""
        return linker.text(self.module, locations=False)

    def bytecode(self) -> bytes:
        """The module for another process."""
        return linker.bytecode(self.module)

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
    shardings: linker.Shardings = linker.NO_SHARDINGS,
) -> Lowered:
    """Lower `graph`: placeholders and results are tensors with static shapes in meta["val"].

    `aliases` maps a placeholder's position to that of the result that replaces it and may take over
    its memory. `shardings` are those of a partitioned program. With `native=False`, ops that have a
    rule do not go to torch-mlir.

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
        is_torch_mlirs = is_native(node) and (native or not has_rule(node))
        if is_torch_mlirs and not host_kernels.is_left(node, target):
            continue
        location = location_of(node)
        body = body_of(node, target)
        if isinstance(body, Refusal):
            raise error_of(node, body)
        called = body, location
        name = names.setdefault(called, f"{called[0].name}.{len(names)}")
        calls[node], bodies[name] = name, called
    imported = importer.import_graph(graph, calls)
    torch_dialect = importer.text(imported) if keep_text else ""
    artifact = importer.to_stablehlo(imported, linker.stablehlo_version())
    of_products = _PRECISION[target.matmul_precision]
    of_convolutions = _PRECISION[target.convolution_precision]
    precision = linker.Precision(of_products, of_convolutions)
    linked = linker.link(artifact, bodies, precision, aliases, shardings)
    return Lowered(linked, torch_dialect)
