"""The programs that one graph becomes where PyTorch's kernels run between them.

Equal ones (blocks of a network that repeat) are compiled once, and all count as one compile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph, Node
from torch.fx.node import map_arg

from xla_dynamo.backend import metrics
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.bookkeeping import optional


@dataclass
class Parts:
    """What was compiled for one graph.

    nodes, lowering, compiling, from_disk: as in the record of a compile, of all together.
    """

    nodes: int = 0
    lowering: float = 0.0
    compiling: float = 0.0
    from_disk: bool = True
    _made: dict[str, pjrt.Executable] = field(default_factory=dict)

    def one_of_each(
        self, graph: Graph, compile: Callable[[Graph], pjrt.Executable]
    ) -> pjrt.Executable:
        """The executable of an equal graph that came before, or a new one."""
        text = text_of(graph)
        if text not in self._made:
            self._made[text] = compile(graph)
        return self._made[text]

    def add(self, record: metrics.CompileRecord) -> None:
        self.nodes += record.nodes
        self.lowering += record.lowering_seconds
        self.compiling += record.compile_seconds
        self.from_disk &= record.from_disk

    @optional(None)
    def record(self, name: str, shapes: tuple[str, ...], reason: str, location: str) -> None:
        """Record them as one compile, if there were any."""
        if self._made:
            details = self.nodes, self.lowering, self.compiling, self.from_disk
            metrics.record_compile(metrics.CompileRecord(name, shapes, *details, reason, location))


def text_of(graph: Graph) -> str:
    """All that decides what a static graph is lowered to, by other names for its nodes."""
    number: dict[Node, str] = {}
    lines = []
    for node in graph.nodes:
        number[node] = f"%{len(number)}"
        operands = map_arg((node.args, node.kwargs), lambda n: _Name(number[n]))
        target = "" if node.op in ("placeholder", "output") else f" {node.target}"
        lines.append(f"{node.op}{target} {operands} {_types(node.meta.get('val'))}")
    return "\n".join(lines)


class _Name(str):
    """Told apart from a string that an op is given."""

    __slots__ = ()
    __repr__ = str.__str__


def _types(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_types(each) for each in value]
    if not hasattr(value, "dtype"):
        return repr(value)
    bits = value.is_neg(), value.is_conj()
    return value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), bits
