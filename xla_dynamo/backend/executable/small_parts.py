"""Parts beside PyTorch's kernels that are too small for a program: PyTorch computes them, too.

A program that comes after a kernel costs 0.1 to 0.4 ms before it computes: its code has left the
caches, and its threads sleep. Milliseconds of PyTorch's kernels / of the program for batch norm and
ReLU after a convolution, in evaluation, 16 images (two cores of a Cascade Lake, torch 2.13, jaxlib
0.10.2):

| 64 channels of 16x16 | 128 of 8x8 | 256 of 4x4 | 512 of 2x2 |
|---|---|---|---|
| 0.08, 0.75 | 0.04, 0.42 | 0.03, 0.43 | 0.04, 0.42 |

So have the parts before the first kernel and after the last one: embeddings, a small head, a loss.
An LSTM's training step, of 16 x 32 words, takes 38.3 ms with programs for these, 33.8 without, and
its process 714 MB, 558 (two cores of an Emerald Rapids).

What is larger gains from being one loop, and stays a program; but for one op alone, which is one
loop in PyTorch, too (2 million elements: a sum of two 1.3, 2.0; GELU 1.4, 2.0).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering import host_kernels

from . import partition
from .partition import Segment

aten = torch.ops.aten
_PROGRAM, _CALL = 250_000.0, 8_000.0  # nanoseconds, whatever the size
_LOOP = 0.4  # for each element that a program reads and writes, whatever it computes
_LONGER_BY_TANH = 1.2  # for each that PyTorch's GELU approximates

# Ops that take operands in any order of memory: the nanoseconds that each element takes longer in
# PyTorch's kernel than in a program's loop.
_LONGER: dict[Any, float] = {
    aten._log_softmax.default: 0.0,
    aten._log_softmax_backward_data.default: 0.0,
    aten._native_batch_norm_legit_functional.default: 0.4,
    aten._native_batch_norm_legit_no_training.default: 0.25,
    aten._softmax.default: 0.1,
    aten._softmax_backward_data.default: 0.1,
    aten._to_copy.default: 0.8,
    aten._unsafe_view.default: 0.0,
    aten.add.Tensor: 0.2,
    aten.arange.default: 1.0,
    aten.cat.default: 0.0,
    aten.clone.default: 0.1,
    aten.div.Scalar: 0.2,
    aten.div.Tensor: 0.3,
    aten.embedding.default: 0.0,
    aten.embedding_dense_backward.default: 0.0,
    aten.fill.Scalar: 0.1,
    aten.full_like.default: 0.1,
    aten.gelu.default: 0.2,
    aten.gelu_backward.default: 0.0,
    aten.hardtanh.default: 0.2,
    aten.le.Scalar: 0.9,
    aten.leaky_relu.default: 0.2,
    aten.max_pool2d_with_indices.default: 3.0,
    aten.max_pool2d_with_indices_backward.default: -0.2,
    aten.mean.default: -0.1,
    aten.mean.dim: 0.1,
    aten.mul.Scalar: 0.2,
    aten.mul.Tensor: 0.2,
    aten.native_group_norm.default: -1.0,
    aten.native_group_norm_backward.default: -1.0,
    aten.native_layer_norm.default: 0.1,
    aten.native_layer_norm_backward.default: -0.5,
    aten.neg.default: 0.2,
    aten.nll_loss_backward.default: 0.2,
    aten.nll_loss_forward.default: 0.0,
    aten.ones_like.default: 0.1,
    aten.pow.Tensor_Scalar: 0.2,
    aten.relu.default: 0.1,
    aten.rsub.Scalar: 0.3,
    aten.scalar_tensor.default: 0.0,
    aten.sigmoid.default: 0.0,
    aten.silu.default: 0.1,
    aten.silu_backward.default: 0.2,
    aten.sub.Tensor: 0.3,
    aten.sum.default: -0.1,
    aten.sum.dim_IntList: 0.1,
    aten.tanh.default: 0.1,
    aten.tanh_backward.default: 0.1,
    aten.upsample_nearest2d.default: 2.0,
    aten.upsample_nearest2d_backward.default: 0.7,
    aten.where.self: 3.6,
    aten.zeros.default: 0.1,
    aten.zeros_like.default: 0.1,
    torch.ops.xla_dynamo.hardswish.default: 0.3,
    torch.ops.xla_dynamo.hardswish_backward.default: 0.3,
    torch.ops.xla_dynamo.hardtanh_backward.default: 0.3,
    torch.ops.xla_dynamo.leaky_relu_backward.default: 0.3,
    torch.ops.xla_dynamo.relu_backward.default: 0.3,
    **dict.fromkeys(host_kernels.FIRST_FACTORS, 0.0),
}
_LEAST_WORK = 1e7  # of a product that is slower, if PyTorch's kernel is the slower one
# Views by strides, which a kernel's result may have other ones of than a trace knows.
_OF_STRIDES = (aten.as_strided.default, aten.view.dtype)
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)


def opened(
    steps: Sequence[Segment | Node], kernels: Collection[Node]
) -> tuple[list[Segment | Node], list[Node]]:
    """The same steps, with the calls of small segments one by one; and those calls.

    kernels: the calls among the steps that PyTorch computes, without the items of their results.
    """
    found: list[Segment | Node] = []
    calls: list[Node] = []
    small = _small(steps, kernels)
    segments = 0
    for step in steps:
        if isinstance(step, Node):
            found.append(step)
        elif step in small:
            found.extend(step.members)
            calls.extend(_calls(step))
        else:
            found.append(replace(step, index=segments))
            segments += 1
    return found, calls


def nanoseconds(graph: Graph, kernels: Collection[Node]) -> float:
    """What it costs to run `graph` in turns, beside what its ops take in any case."""
    steps = partition.split(graph, kernels, late=True)
    segments = [step for step in steps if isinstance(step, Segment)]
    small = _small(steps, kernels)
    return sum(_longer(_calls(each)) if each in small else _PROGRAM for each in segments)


def _small(steps: Sequence[Segment | Node], kernels: Collection[Node]) -> set[Segment]:
    """The segments that PyTorch computes call by call."""
    shared = _shared(steps)
    segments = [step for step in steps if isinstance(step, Segment)]
    return {
        each for each in segments if shared.isdisjoint(each.members) and _is_small(each, kernels)
    }


def _is_small(segment: Segment, kernels: Collection[Node]) -> bool:
    """Whether a segment lies beside a kernel, and costs more as a program than call by call.

    Views are no work at all.
    """
    calls = _calls(segment)
    views = [
        node for node in calls if fx.gives_views(node.target) and node.target not in _OF_STRIDES
    ]
    if any(node.target not in _LONGER for node in calls if node not in views):
        return False
    if any(node.op == "get_attr" for node in segment.inputs):
        return False
    if len(views) == len(calls):
        return True
    after = any(partition.call_of(node) in kernels for node in segment.inputs)
    before = any(user in kernels for node in segment.outputs for user in node.users)
    return (after or before) and _longer(calls) < _PROGRAM


def _shared(steps: Sequence[Segment | Node]) -> set[Node]:
    """Views that a graph returns beside what they view, or beside another view of it.

    Results of programs share no memory: a later program may take over that of one.
    """
    of_memory: dict[Node, list[Node]] = {}
    for step in steps:
        for node in step.members if isinstance(step, Segment) else (step,):
            if any(user.op == "output" for user in node.users):
                of_memory.setdefault(_memory(node), []).append(node)
    return {
        view
        for memory, returned in of_memory.items()
        for view in returned
        if len(returned) > 1 or memory.op == "placeholder"
    }


def _memory(node: Node) -> Node:
    """The argument, or the result of a call, that a node is in the memory of."""
    while True:
        *_, node = fx.bases(node, (aten._unsafe_view.default,))
        call = partition.call_of(node)
        if call is node or not fx.gives_views(call.target):
            return node
        node = call.args[0]


def _calls(segment: Segment) -> list[Node]:
    return [node for node in segment.members if node.target is not operator.getitem]


def _longer(calls: Sequence[Node]) -> float:
    """How much longer PyTorch takes for the calls of a segment than a program that has begun."""
    computing = [call for call in calls if not fx.gives_views(call.target)]
    saved = _LOOP * _elements(computing[0]) if len(computing) == 1 else 0.0
    return sum(map(_nanoseconds, computing)) - saved


def _nanoseconds(call: Node) -> float:
    """How much longer PyTorch takes for this call, as part of a program that runs anyway."""
    if any(tensor.dtype not in _DTYPES for tensor in _tensors(call)):
        return _PROGRAM
    if _is_long_product(call) or _has_default_dtype(call):
        return _PROGRAM
    by_tanh = call.kwargs.get("approximate") == "tanh"
    longer = _LONGER[call.target] + (_LONGER_BY_TANH if by_tanh else 0.0)
    return _CALL + longer * _elements(call)


def _is_long_product(call: Node) -> bool:
    """Whether it may matter who computes a product."""
    result, first = call.meta["val"], host_kernels.FIRST_FACTORS.get(call.target)
    if first is None:
        return False
    factor: Any = call.args[first]
    work = result.numel() * factor.meta["val"].shape[-1]
    return bool(result.dtype == torch.bfloat16 or work >= _LEAST_WORK)


def _has_default_dtype(call: Node) -> bool:
    """Whether it makes floats of the dtype that is PyTorch's default at the time."""
    is_told = call.all_input_nodes or call.kwargs.get("dtype") is not None
    return not is_told and call.meta["val"].is_floating_point()


def _elements(call: Node) -> int:
    return max(tensor.numel() for tensor in _tensors(call))


def _tensors(call: Node) -> list[Tensor]:
    results: Any = call.meta["val"]
    given = [results, *(node.meta["val"] for node in call.all_input_nodes)]
    return [value for value in pytree.tree_leaves(given) if isinstance(value, Tensor)]
