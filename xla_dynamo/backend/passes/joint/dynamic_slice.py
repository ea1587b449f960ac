"""x.narrow(dim, start, length) where `start` is a tensor -> a slice whose place is data.

Tracing reads such a start as a number (`_local_scalar_dense`), which would split the program there.
The length is known all the same, so `keep_start_on_device` makes of the slice, and of its gradient,
ops that take the tensor. Importing this module registers them; lowering/rules/narrowing.py lowers
them. Where eager raises for a start outside of the tensor, the nearest slice inside is taken.
A slice that is returned stays what it is: a view, whose place in memory only the number tells.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.graph.fx import is_symbolic
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
ops = torch.ops.xla_dynamo
_SLICES = (aten.slice.Tensor, aten.slice_backward.default)


def keep_dynamic_slice(graph: Graph, context: Context) -> bool:
    """Rewrite, in place, a graph that holds forward and backward together, or inference only."""
    returned = set(map(_memory, graph.output_node().all_input_nodes))
    slices = [n for n in graph.nodes if n.target in _SLICES]
    if any(n.target is aten.slice.Tensor and _memory(n) in returned for n in slices):
        return False  # the number is read in any case
    changed = [node for node in slices if _rewrite(graph, node)]
    if changed:
        _drop_unused_numbers(graph)
    return bool(changed)


def _rewrite(graph: Graph, node: Node) -> bool:
    arguments = fx.arguments(node)
    number, dim = arguments.get("start"), arguments.get("dim", 0)
    if not isinstance(number, Node) or number.target is not aten._local_scalar_dense.default:
        return False
    start: Any = number.args[0]
    forward = node.target is aten.slice.Tensor
    narrow: Any = node if forward else arguments["grad_output"]
    length = _known(narrow.meta["val"].shape[dim])
    if arguments.get("step", 1) != 1 or length is None:
        return False
    if forward:
        op, args = ops.dynamic_slice.default, (arguments["input"], dim, start, length)
    else:
        op = ops.dynamic_slice_backward.default
        args = (narrow, arguments["input_sizes"], dim, start)
    known = [(_known(size), size) for size in node.meta["val"].shape]
    sizes = [size if number is None else number for number, size in known]
    with graph.inserting_before(node):
        value = node.meta["val"].new_empty(sizes)
        edit.substitute(node, edit.insert(graph, op, args, {}, like=node, value=value))
    return True


def _known(size: Any) -> int | None:
    return size.node.maybe_as_int() if is_symbolic(size) else size


def _memory(node: Node) -> Any:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else node


def _drop_unused_numbers(graph: Graph) -> None:
    """Erase the reads, and what was computed of them, that nothing uses any more."""
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and is_symbolic(node.meta.get("val")):
            graph.erase_node(node)
