"""All that decides what a static graph is lowered to, as text: equal graphs have equal ones."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from . import rng_keys

# Namespaces of ops that mean the same in every process of these versions.
_NAMESPACES = frozenset({"aten", "prims", "xla_dynamo", "torchvision"})
# But for these, whose functions have a name in one process.
_OF_ONE_PROCESS = frozenset(
    {"xla_dynamo::jax_call", "xla_dynamo::jax_gradient", "xla_dynamo::optimizer_updates"}
)
_PLAIN = (int, float, complex, str, torch.dtype, torch.layout, torch.memory_format, torch.device)


def text_of(graph: Graph) -> str:
    """The graph, by other names for its nodes."""
    number: dict[Node, str] = {}
    lines = []
    for node in graph.nodes:
        number[node] = f"%{len(number)}"
        operands = map_arg((node.args, node.kwargs), lambda n: _Name(number[n]))
        target = "" if node.op in ("placeholder", "output") else f" {_target(node)}"
        lines.append(f"{node.op}{target} {operands} {_types(node.meta.get('val'))}")
    return "\n".join(lines)


def _target(node: Node) -> Any:
    return "rng_keys.call" if node.target is rng_keys.call else node.target


def is_text_complete(graph: Graph) -> bool:
    """Whether the text says all, also to another process: no function or module is an argument."""
    return all(
        node.op in ("placeholder", "output")
        or (node.op == "call_function" and _is_known(node.target))
        for node in graph.nodes
    ) and all(_is_plain((node.args, node.kwargs)) for node in graph.nodes)


def is_of_every_process(op: Any) -> bool:
    """Whether an op of PyTorch's registry has the same meaning in every process."""
    return op.namespace in _NAMESPACES and op._schema.name not in _OF_ONE_PROCESS


def _is_known(target: Any) -> bool:
    is_op = isinstance(target, torch._ops.OpOverload)
    return is_of_every_process(target) if is_op else target in (operator.getitem, rng_keys.call)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    if isinstance(value, torch._ops.OpOverload):
        return is_of_every_process(value)
    return value is None or isinstance(value, (Node, *_PLAIN))


class _Name(str):
    """Told apart from a string that an op is given."""

    __slots__ = ()
    __repr__ = str.__str__


def _types(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_types(each) for each in value]
    if not isinstance(value, torch.Tensor):
        return repr(value)
    bits = value.is_neg(), value.is_conj()
    return value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), bits
