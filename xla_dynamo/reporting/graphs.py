"""FX graph -> the ops that a report shows of a program."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.lowering.nodes import op_of
from xla_dynamo.backend.lowering.source import location_of

from .model import MOST, Op

# Dynamo's name of a module: L['self'].layers.0, or L__self___layers.0
_OWNER = re.compile(r"^L\[['\"]\w+['\"]\]\.?|^L__\w+?___")


def ops_of(graph: Graph) -> tuple[Op, ...]:
    """The first `MOST` ops of a graph, arguments among them, in order."""
    nodes = [node for node in graph.nodes if node.op in ("placeholder", "call_function")][:MOST]
    position = {node: i for i, node in enumerate(nodes)}
    return tuple(_op(node, position) for node in nodes)


def _op(node: Node, position: dict[Node, int]) -> Op:
    inputs = tuple(position[n] for n in node.all_input_nodes if n in position)
    shape = shape_of(node.meta.get("val"))
    if node.op == "placeholder":
        return Op(node.name, "argument", shape, inputs, "", "", "")
    at = location_of(node)
    where = f"{at.file}:{at.line}" if at.file else ""
    return Op(node.name, _short(op_of(node)), shape, inputs, _module(node), where, at.code)


def _short(op: Any) -> str:
    name = str(op) if isinstance(op, torch._ops.OpOverload) else getattr(op, "__name__", str(op))
    return name.removesuffix(".default").removeprefix("aten.")


def shape_of(value: Any) -> str:
    """ "float32[2, 3]"; of several results, all of them."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (tuple, list)):
        return ", ".join(filter(None, map(shape_of, value)))
    return ""


def _module(node: Node) -> str:
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    name = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    path = _OWNER.sub("", str(path)).replace("._modules", "")
    path = re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", path)
    return f"{path or '(the model)'} ({name.rpartition('.')[2]})"
