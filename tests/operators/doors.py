"""The ways in which a user's function reaches XLA: a door turns a function into one that does.

The function takes and returns nested lists, tuples and dicts of CPU tensors. Autograd flows through
a door: gradients of what the opened function returns are computed behind the door too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Function = Callable[[Any], Any]
Door = Callable[[Function], Function]


def compiled(function: Function) -> Function:
    """torch.compile(backend="xla", fullgraph=True): one graph, or an error."""
    torch.compiler.reset()
    return torch.compile(function, backend="xla", fullgraph=True)


def broken(function: Function) -> Function:
    """torch.compile(backend="xla"), where Dynamo may break the graph and run ops in eager."""
    torch.compiler.reset()
    return torch.compile(function, backend="xla")


def traced(function: Function) -> Function:
    """torch.compile(backend="aot_eager"): the same road without XLA, to tell whose fault it is."""
    torch.compiler.reset()
    return torch.compile(function, backend="aot_eager", fullgraph=True)


DOORS: dict[str, Door] = {"compile": compiled}
