"""A program of the CPU that takes milliseconds has the cores to itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.fx import Graph

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.runtime import openmp

Made = TypeVar("Made")
# Of all ops' results; from half a millisecond of two cores to two.
_MANY_ELEMENTS = 2**20


def is_long(graph: Graph) -> bool:
    """Whether the program of `graph` takes so long that PyTorch's threads should end before it."""
    values = [node.meta.get("val") for node in fx.calls(graph)]
    return sum(v.numel() for v in values if isinstance(v, torch.Tensor)) >= _MANY_ELEMENTS


def without_kernels(run: Callable[[list[Any]], Made]) -> Callable[[list[Any]], Made]:
    """`run`, once the threads of PyTorch's kernels have ended."""

    def alone(arguments: list[Any]) -> Made:
        openmp.end_threads()
        return run(arguments)

    return alone
