"""Choose the distinct arrays that XLA computes for a graph's outputs, and how to make each output.

An output that is dense (channels_last, a transposed product) or expanded in eager gets eager's
strides. Outputs that alias an argument or another output in eager alias it here. Any other view of
a larger tensor becomes row-major, so that XLA need not keep its base.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx, memory_layout, view_chain
from xla_dynamo.backend.runtime import on_device

from . import output_aliasing

aten = torch.ops.aten

# Arguments of as_strided: size, stride, offset.
View = tuple[tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True)
class Output:
    """How an output is made of an array (by `view` or `view_ops`), an argument, or a constant.

    array, argument: the position of what it is made of.
    view_ops: make it of an argument, or of an array on a device whose tensors have no strides.
    view: size, stride and offset in the array.
    restrides: the array's tensor itself gets the strides of `view`, as no other output is made of
        it. Autograd forbids in-place ops on a view that its Function returns.
    detaches: an earlier output is the same tensor; autograd tells the two apart.
    dtype: of a view, where the array has another one.
    negative, conjugate: whether the view has PyTorch's bit for it and the array has not.
    empty: shape, strides and dtype of an output without elements. PyTorch can resize it, as `out=`
        does to torch.empty(0); the memory of an array cannot be resized.
    """

    array: int | None = None
    argument: int | None = None
    view_ops: view_chain.ViewOps = ()
    constant: Any = None
    view: View | None = None
    restrides: bool = False
    detaches: bool = False
    dtype: torch.dtype | None = None
    negative: bool = False
    conjugate: bool = False
    empty: tuple[tuple[int, ...], tuple[int, ...], torch.dtype] | None = None

    def result(self, arguments: Sequence[Any], tensors: Sequence[torch.Tensor]) -> Any:
        """This output of a call, given its arguments and the tensors that were computed."""
        if self.array is not None:
            tensor = tensors[self.array]
            if self.view_ops:
                return view_chain.replay(tensor, self.view_ops).detach()
            if self.view is None:
                return tensor.detach() if self.detaches else tensor
            if self.restrides:
                return tensor.as_strided_(*self.view)
            return self._view_of(tensor, *self.view)
        if self.empty is not None:
            shape, strides, dtype = self.empty
            return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")
        if self.argument is None:
            return self.constant
        argument = on_device.host_of(arguments[self.argument])
        return view_chain.replay(argument, self.view_ops)

    def _view_of(self, tensor: torch.Tensor, size: Any, stride: Any, offset: int) -> torch.Tensor:
        """A view that autograd does not know as one: it would differentiate the base with it."""
        if self.dtype is None:
            view = tensor.as_strided(size, stride, offset)
        else:
            view = torch.empty(0, dtype=self.dtype, device=tensor.device)
            view.set_(tensor.untyped_storage(), offset, size, stride)
        view = aten._neg_view.default(view) if self.negative else view
        return (view.conj() if self.conjugate else view).detach()


def plan(
    graph: Graph,
    strided: int,
    views: int,
    alone: Collection[int] = (),
    is_part: bool = False,
) -> list[Output]:
    """Decide how each output is made; leave only distinct computed tensors in `graph`.

    The first `strided` outputs get eager's strides, the first `views` are views of arguments where
    eager's are. Those at the positions `alone` share memory with nothing. In a part of a graph, the
    outputs into which a tensor is split (queries, keys and values) are views of it: XLA copies
    nothing.
    """
    placeholders = fx.placeholders(graph)
    results = fx.results(graph)
    shared = [None if i in alone else result for i, result in enumerate(results)]
    bases = output_aliasing.bases(shared[:strided], is_part)
    overlapping = output_aliasing.overlapping_views(shared[strided:views])
    positions: dict[tuple[Node, tuple[int, ...] | None], int] = {}
    arrays: list[Node] = []

    def position(node: Node, is_alone: bool, order: tuple[int, ...] | None = None) -> int:
        found = None if is_alone else positions.get((node, order))
        if found is None:
            found = len(arrays)
            arrays.append(_permuted(graph, node, order) if order else node)
        if not is_alone:
            positions[node, order] = found
        return found

    def output(index: int, result: Any) -> Output:
        is_alone = index in alone
        may_alias = index < views and not is_alone
        if not isinstance(result, Node):
            return Output(constant=result)
        if result.op == "placeholder":
            return Output(argument=placeholders.index(result))
        if may_alias and (found := view_chain.of_argument(result)) is not None:
            return Output(argument=placeholders.index(found[0]), view_ops=found[1])
        detaches = may_alias and result in results[:index]
        if may_alias and result in overlapping:
            base, view_ops = overlapping[result]
            return Output(array=position(base, is_alone), view_ops=view_ops, detaches=detaches)
        if index >= strided:
            return Output(array=position(result, is_alone), detaches=detaches)
        value = result.meta["val"]
        if value.numel() == 0 and value.device.type == "cpu":
            return Output(empty=(tuple(value.shape), value.stride(), value.dtype))
        base = result if is_alone else output_aliasing.base_of(result, bases)
        base = _dense_base(result) if base is result else base
        of = base.meta["val"]
        order = memory_layout.physical_order(of)
        return Output(
            array=position(base, is_alone, order),
            view=_view(value, of) if order or base is not result else None,
            restrides=base is result and not detaches,
            detaches=detaches,
            dtype=None if value.dtype is of.dtype else value.dtype,
            negative=value.is_neg() != of.is_neg(),
            conjugate=value.is_conj() != of.is_conj(),
        )

    planned = [output(index, result) for index, result in enumerate(results)]
    graph.output_node().args = (tuple(arrays),)
    uses = collections.Counter(output.array for output in planned)
    return [replace(o, restrides=o.restrides or uses[o.array] == 1) for o in planned]


def _dense_base(node: Node) -> Node:
    """The dense tensor that `node` repeats along dimensions of stride 0, or `node` itself.

    Or the uninitialised tensor of which it is a view that leaves gaps: no other output aliases it.
    """
    value = node.meta["val"]
    repeats = memory_layout.repeats_elements(value.shape, value.stride())
    source = node
    while source.all_input_nodes:
        source = source.all_input_nodes[0]
        if source.op != "call_function" or not output_aliasing.is_alias(source, node):
            break
        wanted = repeats or source.target is aten.empty.memory_format
        if wanted and memory_layout.is_dense(source.meta["val"]):
            return source
    return node


def _view(value: torch.Tensor, base: torch.Tensor) -> View:
    offset = int(value.storage_offset() - base.storage_offset())
    # The offset of no elements says nothing, and PyTorch's diagonal may give a negative one.
    return tuple(value.shape), value.stride(), offset if value.numel() else 0


def _permuted(graph: Graph, node: Node, order: tuple[int, ...]) -> Node:
    value = node.meta["val"]
    with value.fake_mode:
        sizes = [value.shape[d] for d in order]
        permuted = torch.empty(sizes, dtype=value.dtype, device=value.device)
    with graph.inserting_before(graph.output_node()):
        args = (node, list(order))
        return edit.insert(graph, aten.permute.default, args, {}, like=node, value=permuted)
