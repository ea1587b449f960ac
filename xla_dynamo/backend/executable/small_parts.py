"""Parts beside PyTorch's kernels that are too small for a program: PyTorch computes them, too.

A program that comes after a kernel costs 0.1 to 0.6 ms before it computes: its code has left the
caches, and its threads sleep. Milliseconds of PyTorch's kernels / of the program for batch norm and
ReLU after a convolution, in evaluation, 16 images (two cores of a Cascade Lake, torch 2.13, jaxlib
0.10.2):

| 64 channels of 16x16 | 128 of 8x8 | 256 of 4x4 | 512 of 2x2 |
|---|---|---|---|
| 0.08, 0.75 | 0.04, 0.42 | 0.03, 0.43 | 0.04, 0.42 |

The parts before the first kernel and after the last one cost the same: embeddings, a head, a loss.
An LSTM's training step, of 16 x 32 words, takes 38.3 ms with programs for these, 33.8 without, and
its process 714 MB, 558 (two cores of an Emerald Rapids).

What is larger gains from being one loop, and stays a program; but for one op alone, which is one
loop in PyTorch, too (2 million elements: a sum of two 1.3, 2.0; GELU 1.4, 2.0).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx

from . import call_costs, partition
from .partition import Segment

aten = torch.ops.aten
# Views by strides, which a kernel's result may have other ones of than a trace knows.
_OF_STRIDES = (aten.as_strided.default, aten.view.dtype)


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
    return sum(
        call_costs.longer(_calls(each)) if each in small else _program(each) for each in segments
    )


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
    if any(node.target not in call_costs.LONGER for node in calls if node not in views):
        return False
    if any(node.op == "get_attr" for node in segment.inputs):
        return False
    if len(views) == len(calls):
        return True
    after = any(partition.call_of(node) in kernels for node in segment.inputs)
    before = any(user in kernels for node in segment.outputs for user in node.users)
    return (after or before) and call_costs.longer(calls) < _program(segment)


def _program(segment: Segment) -> float:
    return call_costs.program((*segment.inputs, *segment.outputs))


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
