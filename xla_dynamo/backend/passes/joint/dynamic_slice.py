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
from torch.fx import Graph, GraphModule, Node

from xla_dynamo.backend.graph.fx import is_symbolic

aten = torch.ops.aten
_SLICES = (aten.slice.Tensor, aten.slice_backward.default)


def keep_start_on_device(module: GraphModule) -> None:
    """Rewrite, in place, a graph that holds forward and backward together, or inference only."""
    graph = module.graph
    returned = set(map(_memory, graph.output_node().all_input_nodes))
    slices = [n for n in graph.nodes if n.target in _SLICES]
    if any(n.target is aten.slice.Tensor and _memory(n) in returned for n in slices):
        return  # the number is read in any case
    changed = [node for node in slices if _rewrite(graph, node)]
    for node in changed:
        graph.erase_node(node)
    if changed:
        _drop_unused_numbers(graph)
        module.recompile()


def _rewrite(graph: Graph, node: Node) -> bool:
    arguments = _by_name(node)
    number, dim = arguments.get("start"), arguments.get("dim", 0)
    if not isinstance(number, Node) or number.target is not aten._local_scalar_dense.default:
        return False
    start: Any = number.args[0]
    forward = node.target is aten.slice.Tensor
    narrow = node if forward else arguments["grad_output"]
    length = _known(narrow.meta["val"].shape[dim])
    if arguments.get("step", 1) != 1 or length is None:
        return False
    with graph.inserting_before(node):
        if forward:
            args = (arguments["self"], dim, start, length)
            new = graph.call_function(torch.ops.xla_dynamo.dynamic_slice.default, args)
        else:
            args = (narrow, arguments["input_sizes"], dim, start)
            new = graph.call_function(torch.ops.xla_dynamo.dynamic_slice_backward.default, args)
    value = node.meta["val"]
    known = [(_known(size), size) for size in value.shape]
    sizes = [size if number is None else number for number, size in known]
    new.meta = {**node.meta, "val": value.new_empty(sizes)}
    new.meta.pop("unbacked_bindings", None)
    node.replace_all_uses_with(new)
    return True


def _known(size: Any) -> int | None:
    return size.node.maybe_as_int() if is_symbolic(size) else size


def _memory(node: Node) -> Any:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else node


def _by_name(node: Node) -> dict[str, Any]:
    assert isinstance(node.target, torch._ops.OpOverload)
    names = [argument.name for argument in node.target._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _drop_unused_numbers(graph: Graph) -> None:
    """Erase the reads, and what was computed of them, that nothing uses any more."""
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and is_symbolic(node.meta.get("val")):
            graph.erase_node(node)
