"""The ways in which the sweep's calls reach XLA: a door turns a function into one that does.

The function takes and returns nested lists, tuples and dicts of CPU tensors. Autograd flows through
a door: gradients of what the opened function returns are computed behind the door too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.like_eager import lazy as lazy_device
from tests.like_eager.compiled import door
from xla_dynamo.backend.executable import padded_call

Function = Callable[[Any], Any]
Door = Callable[[Function], Function]

compiled = door(fullgraph=True)  # one graph, or an error
broken = door()  # Dynamo may break the graph and run ops in eager
traced = door("aot_eager", fullgraph=True)  # the same road without XLA, to tell whose fault it is
lazy = lazy_device.door


def _symbolic(open_: Door) -> Door:
    """`open_`, with every dimension of every tensor that it is given a symbol."""

    def opened(function: Function) -> Function:
        run = open_(function)

        def call(samples: Any) -> Any:
            for x in pytree.tree_leaves(samples):
                if isinstance(x, torch.Tensor) and x.layout is torch.strided:
                    for dimension in range(x.dim()):
                        torch._dynamo.maybe_mark_dynamic(x, dimension)
            return run(samples)

        return call

    return opened


def _wider(size: int) -> int:
    return size + 3


def _padded(function: Function) -> Function:
    padded_call.poison = True  # also while gradients are computed, behind the door
    return _symbolic(door(fullgraph=True, options={"bucket": _wider}))(function)


bucketed = _padded
symbolic = _symbolic(traced)

DOORS: dict[str, Door] = {"compile": compiled, "lazy": lazy, "bucket": bucketed}
# The same roads without XLA.
TRACED: dict[Door, Door] = {compiled: traced, bucketed: symbolic}
