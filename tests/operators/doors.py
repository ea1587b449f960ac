"""The ways in which the sweep's calls reach XLA: a door turns a function into one that does.

The function takes and returns nested lists, tuples and dicts of CPU tensors. Autograd flows through
a door: gradients of what the opened function returns are computed behind the door too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.like_eager import lazy as lazy_device
from tests.like_eager.compiled import door

Function = Callable[[Any], Any]
Door = Callable[[Function], Function]

compiled = door(fullgraph=True)  # one graph, or an error
broken = door()  # Dynamo may break the graph and run ops in eager
traced = door("aot_eager", fullgraph=True)  # the same road without XLA, to tell whose fault it is
lazy = lazy_device.door

DOORS: dict[str, Door] = {"compile": compiled, "lazy": lazy}
