"""The results of a graph -> distinct arrays for XLA to compute, and how each is made of them.

A result has the strides that eager's has if it is dense (channels_last, a transposed product) or
expanded. Results that are views of an argument or of another result share its memory, as in eager.
What is left is a part of a larger tensor that nobody gets: it is row-major, so that XLA need not
keep the whole.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx, memory_layout, view_chain

from . import output_aliasing

aten = torch.ops.aten

# Arguments of as_strided: size, stride, offset.
View = tuple[tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True)
class Output:
    """Where a result comes from: an array (seen as `view`), an argument (by `steps`), a constant.

    steps: or of an array on a device whose tensors have no strides.
    whole: it is the array, in other strides, or the only result that is made of it. Autograd takes
    no in-place op on a result of its Function that is a view, hence such a result is none.
    again: the array is a result already, this one was detached: autograd tells tensors apart.
    dtype: that of a view, where the array has another one.
    negative, conjugate: the view has PyTorch's bit for it, which the array has not.
    blank: shape, strides and dtype of what has no elements. PyTorch can resize it, as `out=` asks
    of torch.empty(0); the memory of arrays it cannot.
    """

    array: int | None = None
    argument: int | None = None
    steps: view_chain.Steps = ()
    constant: Any = None
    view: View | None = None
    whole: bool = False
    again: bool = False
    dtype: torch.dtype | None = None
    negative: bool = False
    conjugate: bool = False
    blank: tuple[tuple[int, ...], tuple[int, ...], torch.dtype] | None = None

    def result(self, arguments: Sequence[Any], tensors: Sequence[torch.Tensor]) -> Any:
        """This result of a call, given its arguments and the tensors that were computed."""
        if self.array is not None:
            tensor = tensors[self.array]
            if self.steps:
                return view_chain.replay(tensor, self.steps).detach()
            if self.view is None:
                return tensor.detach() if self.again else tensor
            return tensor.as_strided_(*self.view) if self.whole else self._part(tensor, *self.view)
        if self.blank is not None:
            shape, strides, dtype = self.blank
            return torch.empty_strided(shape, strides, dtype=dtype)
        if self.argument is None:
            return self.constant
        return view_chain.replay(arguments[self.argument], self.steps)

    def _part(self, tensor: torch.Tensor, size: Any, stride: Any, offset: int) -> torch.Tensor:
        """A view in memory alone: autograd would differentiate what was detached with the whole."""
        if self.dtype is None:
            part = tensor.as_strided(size, stride, offset)
        else:
            part = torch.empty(0, dtype=self.dtype, device=tensor.device)
            part.set_(tensor.untyped_storage(), offset, size, stride)
        part = aten._neg_view.default(part) if self.negative else part
        return (part.conj() if self.conjugate else part).detach()


def plan(graph: Graph, visible: int, views: int, no_aliasing: bool = False) -> list[Output]:
    """Decide where each result comes from; leave only distinct computed tensors in `graph`.

    The first `visible` results have strides, the first `views` are views of arguments where eager's
    are; the others only the graph of backward sees. With `no_aliasing`, results share no memory.
    """
    placeholders = fx.placeholders(graph)
    results = fx.results(graph)
    wholes = {} if no_aliasing else output_aliasing.wholes(results[:visible])
    made_of = {} if no_aliasing else output_aliasing.made_of(results[visible:views])
    positions: dict[tuple[Node, tuple[int, ...] | None], int] = {}
    arrays: list[Node] = []

    def position(node: Node, order: tuple[int, ...] | None) -> int:
        if no_aliasing or (node, order) not in positions:
            positions[node, order] = len(arrays)
            arrays.append(_permuted(graph, node, order) if order else node)
        return positions[node, order]

    aliased = 0 if no_aliasing else views
    planned: list[Output] = []
    for index, result in enumerate(results):
        again = index < aliased and result in results[:index]
        if not isinstance(result, Node):
            planned.append(Output(constant=result))
        elif result.op == "placeholder":
            planned.append(Output(argument=placeholders.index(result)))
        elif index < aliased and (made := view_chain.of_argument(result)) is not None:
            planned.append(Output(argument=placeholders.index(made[0]), steps=made[1]))
        elif index < views and result in made_of:
            source, steps = made_of[result]
            planned.append(Output(array=position(source, None), steps=steps, again=again))
        elif index >= visible:
            planned.append(Output(array=position(result, None), again=again))
        elif _is_blank(result.meta["val"]):
            value = result.meta["val"]
            planned.append(Output(blank=(tuple(value.shape), value.stride(), value.dtype)))
        else:
            base = output_aliasing.whole(result, wholes)
            base = _unexpanded(result) if base is result else base
            order = memory_layout.physical_order(base.meta["val"])
            view = _view(result, base) if order or base is not result else None
            whole = base is result and not again
            output = Output(array=position(base, order), view=view, whole=whole, again=again)
            planned.append(_seen_as(result.meta["val"], base.meta["val"], output))
    graph.output_node().args = (tuple(arrays),)
    uses = collections.Counter(output.array for output in planned)
    return [replace(o, whole=o.whole or uses[o.array] == 1) for o in planned]


def _is_blank(value: torch.Tensor) -> bool:
    """Whether a result is on the CPU and has no elements."""
    return value.numel() == 0 and value.device.type == "cpu"


def _seen_as(value: torch.Tensor, base: torch.Tensor, output: Output) -> Output:
    """`output`, a view of `base`, with what else makes it `value`."""
    negative, conjugate = value.is_neg() != base.is_neg(), value.is_conj() != base.is_conj()
    dtype = None if value.dtype is base.dtype else value.dtype
    return replace(output, dtype=dtype, negative=negative, conjugate=conjugate)


def _unexpanded(node: Node) -> Node:
    """The dense tensor that `node` repeats along dimensions of stride 0, or `node` itself.

    Or the uninitialised one of which it is a view, with gaps it may be: nobody else gets that.
    """
    value = node.meta["val"]
    repeats = any(n > 1 and s == 0 for n, s in zip(value.shape, value.stride(), strict=True))
    source = node
    while source.all_input_nodes:
        source = source.all_input_nodes[0]
        if source.op != "call_function" or not output_aliasing.is_shared(source, node):
            break
        wanted = repeats or source.target is aten.empty.memory_format
        if wanted and memory_layout.is_dense(source.meta["val"]):
            return source
    return node


def _view(result: Node, base: Node) -> View:
    value = result.meta["val"]
    offset = value.storage_offset() - base.meta["val"].storage_offset()
    # Without elements there is no place, and PyTorch's diagonal gives one before the beginning.
    return tuple(value.shape), value.stride(), offset if value.numel() else 0


def _permuted(graph: Graph, node: Node, order: tuple[int, ...]) -> Node:
    value = node.meta["val"]
    with value.fake_mode:
        permuted = torch.empty([value.shape[d] for d in order], dtype=value.dtype)
    with graph.inserting_before(graph.output_node()):
        args = (node, list(order))
        return edit.insert(graph, aten.permute.default, args, {}, like=node, value=permuted)
