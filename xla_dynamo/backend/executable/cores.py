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


def elements(graph: Graph) -> int:
    """How many elements all results of a graph's ops have together."""
    values = [node.meta.get("val") for node in fx.calls(graph)]
    return sum(v.numel() for v in values if isinstance(v, torch.Tensor))


def alone(run: Callable[..., Made], elements: int) -> Callable[..., Made]:
    """`run`, once the threads of PyTorch's kernels have ended, if it takes long enough for that.

    Its arguments are made before: a copy of a tensor would start new threads.

    elements: of the program's graph.
    """
    threads = torch.get_num_threads()
    is_long = threads > 1 and elements >= _MANY_ELEMENTS * threads**2
    return _without_kernels(run) if is_long else run


def _without_kernels(run: Callable[..., Made]) -> Callable[..., Made]:
    def after_them(*arguments: Any) -> Made:
        openmp.end_threads()
        return run(*arguments)

    return after_them
