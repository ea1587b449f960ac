"""A program of the CPU that takes milliseconds has the cores to itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.fx import Graph

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.runtime import openmp

Made = TypeVar("Made")
# Of all ops' results, for the square of the threads: each costs time to end and start, and makes
# the program shorter. With two threads, a million: half a millisecond to two.
_MANY_ELEMENTS = 2**18


def is_long(graph: Graph) -> bool:
    """Whether the program of `graph` takes so long that PyTorch's threads should end before it."""
    values = [node.meta.get("val") for node in fx.calls(graph)]
    threads = torch.get_num_threads()
    elements = sum(v.numel() for v in values if isinstance(v, torch.Tensor))
    return threads > 1 and elements >= _MANY_ELEMENTS * threads**2


def without_kernels(run: Callable[[list[Any]], Made]) -> Callable[[list[Any]], Made]:
    """`run`, once the threads of PyTorch's kernels have ended."""

    def alone(arguments: list[Any]) -> Made:
        openmp.end_threads()
        return run(arguments)

    return alone
