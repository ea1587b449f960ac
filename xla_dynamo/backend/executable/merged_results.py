"""Results of a CPU's program that are maps have one dimension for all of a map's.

XLA:CPU makes one loop of each dimension of a result. Where the innermost is short, as those of a
convnet's maps are, it is no code of whole vectors, least of all around a call of exp. The tensor
that a call returns has the sizes of eager's all the same. Milliseconds of [N, C, H, W] / of
[N, C, HW], for 800,000 elements (two cores of a Cascade Lake, jaxlib 0.10.2 and 0.12.0.1 alike):

| | 7x7, half as many | 14x14 | 28x28 |
|---|---|---|---|
| SiLU | 2.4, 0.7 | 4.8, 1.4 | 2.1, 0.9 |
| softplus | 9.5, 2.3 | 19, 3.3 | 4.9, 3.1 |
| SiLU of batch norm | 2.5, 0.7 | 5.3, 1.4 | 1.5, 1.0 |
| ReLU of batch norm | 0.4, 0.2 | 0.8, 0.4 | 0.9, 0.4 |
"""

from __future__ import annotations

import collections
import math
import operator
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx, memory_layout

from .output_plan import Output, View

aten = torch.ops.aten

_CHANNELS = 2  # the dimensions before a map's: what differs by channel stays outside its loop
_LONG = 64  # elements of a dimension that is a loop of its own
_LEAST_OF_MAP, _LEAST = 48, 2**13
_NORMS = frozenset(
    {
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit_no_training.default,
        aten.native_batch_norm_backward.default,
    }
)


def merge(graph: Graph, planned: Sequence[Output], kept: Collection[int]) -> list[Output]:
    """How outputs are made where the graph, which is edited, returns merged results.

    kept: the positions of outputs whose arrays stay as they are.
    """
    as_they_are = {planned[at].array for at in kept}
    as_they_are |= {output.array for output in planned if output.view_ops}
    results = fx.results(graph)
    shapes = {
        array: _shape(node)
        for array, node in enumerate(results)
        if array not in as_they_are and _pays(node)
    }
    if not shapes:
        return list(planned)
    new = [_merged(graph, node) if at in shapes else node for at, node in enumerate(results)]
    graph.output_node().args = (tuple(new),)
    uses = collections.Counter(output.array for output in planned)
    return [
        replace(o, view=_view(shapes[o.array]), restrides=uses[o.array] == 1)
        if o.array in shapes and o.view is None
        else o
        for o in planned
    ]


def _pays(node: Node) -> bool:
    value = node.meta["val"]
    if not isinstance(value, Tensor) or value.dim() <= _CHANNELS + 1:
        return False
    of_map = math.prod(value.shape[_CHANNELS:])
    is_short = value.shape[-1] < _LONG and of_map >= _LEAST_OF_MAP
    # XLA would compute twice what another op reads too, and may round it otherwise there.
    is_read = any(user.op != "output" for user in node.users)
    return is_short and value.numel() >= _LEAST and not is_read and _is_one_loop(node)


def _is_one_loop(node: Node) -> bool:
    """Whether a result is computed element by element of what comes from elsewhere.

    What XLA joins to the loop but what reads other elements than it writes (a pad, a slice, a
    transpose) would divide indices.
    """
    size = _elements(node)
    seen, waiting = {node}, [node]
    while waiting:
        source = waiting.pop()
        if source.op == "placeholder":
            continue
        operands = _operands(source)
        if operands is None:
            return False
        new = {each for each in operands if each not in seen and _elements(each) >= size}
        seen |= new
        waiting.extend(new)
    return True


def _elements(node: Node) -> int:
    value = node.meta["val"]
    return value.numel() if isinstance(value, Tensor) else 0


def _operands(node: Node) -> list[Node] | None:
    """What an element of a result is computed of; None if `node` is not elementwise."""
    call: Any = node.args[0] if node.target is operator.getitem else node
    if call is not node and (call.target not in _NORMS or node.args[1] != 0):
        return None
    if call is node and torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        return None
    return call.all_input_nodes


def _merged(graph: Graph, node: Node) -> Node:
    value = node.meta["val"]
    shape = (*value.shape[:_CHANNELS], math.prod(value.shape[_CHANNELS:]))
    with graph.inserting_before(graph.output_node()):
        args = (node, list(shape))
        return edit.insert(
            graph, aten.view.default, args, {}, like=node, value=value.new_empty(shape)
        )


def _view(shape: tuple[int, ...]) -> View:
    return shape, memory_layout.row_major(shape), 0


def _shape(node: Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)
