"""The ways in which the sweep's calls reach XLA: a door turns a function into one that does.

The function takes and returns nested lists, tuples and dicts of CPU tensors. Autograd flows through
a door: gradients of what the opened function returns are computed behind the door too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.like_eager import lazy as lazy_device
from tests.like_eager.compiled import door
from xla_dynamo.backend.executable import padded_layout

from .tpu_door import tpu

Function = Callable[[Any], Any]
Door = Callable[[Function], Function]

compiled = door(fullgraph=True)  # one graph, or an error
broken = door()  # Dynamo may break the graph and run ops in eager
traced = door("aot_eager", fullgraph=True)  # the same road without XLA, to tell whose fault it is
lazy = lazy_device.door


def _symbolic(open_: Door, dimensions: slice = slice(None)) -> Door:
    """`open_`, with these dimensions of every tensor that it is given symbols."""

    def opened(function: Function) -> Function:
        run = open_(function)

        def call(samples: Any) -> Any:
            for x in pytree.tree_leaves(samples):
                if isinstance(x, torch.Tensor) and x.layout is torch.strided:
                    for dimension in range(x.dim())[dimensions]:
                        torch._dynamo.maybe_mark_dynamic(x, dimension)
            return run(samples)

        return call

    return opened


def _wider(size: int) -> int:
    return size + 3


def _padded(bucket: Any = _wider, dimensions: slice = slice(None)) -> Door:
    def open_(function: Function) -> Function:
        padded_layout.poison = True  # also while gradients are computed, behind the door
        return _symbolic(door(fullgraph=True, options={"bucket": bucket}), dimensions)(function)

    return open_


def bucketed_for(sizes: Sequence[int]) -> Door:
    """Every dimension is padded to one of these sizes."""
    return _padded(list(sizes))


bucketed = _padded()
batch = _padded(dimensions=slice(1))  # the first dimension of each tensor only
symbolic = _symbolic(traced)

DOORS: dict[str, Door] = {
    "compile": compiled,
    "lazy": lazy,
    "bucket": bucketed,
    "batch": batch,
    "tpu": tpu,
}
# The same roads without XLA.
TRACED: dict[Door, Door] = {
    compiled: traced,
    tpu: traced,
    bucketed: symbolic,
    batch: _symbolic(traced, slice(1)),
}
