"""FX node -> the line of the user's program that it came from."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from torch.fx import Graph, Node

from .nodes import op_of

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)')
# Frames inside torch (nn.Linear.forward, say) and xla_dynamo.jax_function are not the user's.
_LIBRARY = re.compile(
    r"[/\\](site-packages|dist-packages)[/\\]torch[/\\]|[/\\]xla_dynamo[/\\]backend[/\\]"
)


@dataclass(frozen=True)
class Location:
    """Where an op was written: its aten name, and file, line and code if known (line 0 if not).

    module: the nn.Module it belongs to, where only that is known (a compiled torch.nn.Linear).
    """

    op: str
    file: str = ""
    line: int = 0
    code: str = ""
    module: str = ""

    def mlir(self) -> str:
        """As an MLIR location: XLA shows the op as op_name, the line as source_file:source_line."""
        child = f"({json.dumps(self.file)}:{self.line}:0)" if self.file else ""
        return f"loc({json.dumps(self.op)}{child})"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else self.module or "(no source line)"


def location_of(node: Node) -> Location:
    """The innermost frame of the user's own code in the node's stack trace."""
    frames = _FRAME.findall(node.stack_trace or "")
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    name = str(op_of(node))
    if not own:
        return Location(name, module=_module_of(node))
    file, line, _, code = own[-1]
    return Location(name, file, int(line), code.strip())


def first_location(graph: Graph) -> Location:
    """The first line of the user's program that `graph` is known to come from."""
    located = (location_of(node) for node in graph.nodes if node.op == "call_function")
    known = [found for found in located if found.file or found.module]
    return next((found for found in known if found.file), known[0] if known else Location(""))


def _module_of(node: Node) -> str:
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    return f"{path} ({getattr(kind, '__name__', kind)})"
