"""Replace x.narrow(dim, start, length), where `start` is a tensor, by a dynamic slice.

Tracing reads such a start as a number (`_local_scalar_dense`), which would split the program. As
the length is static all the same, the slice and its gradient become ops that take the tensor. Where
eager raises for a start outside of the tensor, the start is clamped. A slice that is returned stays
a view: its offset in memory must be known.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
ops = torch.ops.xla_dynamo
_SLICES = (aten.slice.Tensor, aten.slice_backward.default)


def keep_dynamic_slice(graph: Graph, context: Context) -> bool:
    """Rewrite the slices of `graph`, and their gradients, in place."""
    returned = set(map(memory, graph.output_node().all_input_nodes))
    slices = [n for n in graph.nodes if n.target in _SLICES]
    if any(n.target is aten.slice.Tensor and memory(n) in returned for n in slices):
        return False  # the start is read in any case
    changed = [node for node in slices if _rewrite(graph, node)]
    if changed:
        edit.drop_unused(graph)  # the reads of starts
    return bool(changed)


def _rewrite(graph: Graph, node: Node) -> bool:
    arguments = fx.arguments(node)
    read, dim = arguments.get("start"), arguments.get("dim", 0)
    if not isinstance(read, Node) or read.target is not aten._local_scalar_dense.default:
        return False
    start: Any = read.args[0]
    forward = node.target is aten.slice.Tensor
    narrow: Any = node if forward else arguments["grad_output"]
    length = fx.known_size(narrow.meta["val"].shape[dim])
    if arguments.get("step", 1) != 1 or length is None:
        return False
    if forward:
        op, args = ops.dynamic_slice.default, (arguments["input"], dim, start, length)
    else:
        op = ops.dynamic_slice_backward.default
        args = (narrow, arguments["input_sizes"], dim, start)
    old = node.meta["val"]
    sizes, strides = ([_known(n) for n in numbers] for numbers in (old.shape, old.stride()))
    with graph.inserting_before(node):
        value = old.new_empty_strided(sizes, strides)
        edit.substitute(node, edit.insert(graph, op, args, {}, like=node, value=value))
    return True


def _known(size: Any) -> Any:
    """A size as a number, where it is known to be one."""
    number = fx.known_size(size)
    return size if number is None else number


def memory(node: Node) -> Any:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if fx.is_strided(value) else node
