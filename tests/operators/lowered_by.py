"""Which way the ops of compiled graphs took: torch-mlir, a JAX rule, or the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from torch.fx import Graph

from xla_dynamo import counters
from xla_dynamo.backend.executable import compile as compiling
from xla_dynamo.backend.lowering.bodies import has_rule
from xla_dynamo.backend.lowering.native import is_native
from xla_dynamo.backend.lowering.nodes import is_op, op_of


@dataclass
class Ways:
    """Names of aten ops in the graphs, by what lowered them."""

    torch_mlir: set[str] = field(default_factory=set)
    rule: set[str] = field(default_factory=set)
    cpu: set[str] = field(default_factory=set)

    def add(self, graph: Graph) -> None:
        for node in graph.nodes:
            if is_op(node) and is_native(node):
                self.torch_mlir.add(str(op_of(node)).removeprefix("aten."))
            elif is_op(node) and has_rule(node):
                self.rule.add(str(op_of(node)).removeprefix("aten."))

    def as_dict(self) -> dict[str, list[str]]:
        found = {"torch-mlir": self.torch_mlir, "rule": self.rule, "cpu": self.cpu}
        return {way: sorted(names) for way, names in found.items() if names}


@contextlib.contextmanager
def watch(ways: Ways) -> Iterator[None]:
    """Collect the ways of all graphs that are compiled, and of all fallbacks, in the block."""
    lower = compiling.lower

    def watched(graph: Graph, *args: Any, **kwargs: Any) -> Any:
        ways.add(graph)
        return lower(graph, *args, **kwargs)

    with mock.patch.object(compiling, "lower", watched):
        yield
    names = (name for name in counters() if name.startswith("fallback."))
    ways.cpu.update(name.removeprefix("fallback.").removeprefix("aten::") for name in names)
