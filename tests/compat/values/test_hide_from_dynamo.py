"""Dynamo traces what is compiled, not the device's kernels, at a graph break either."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._dynamo.utils import counters

import xla_dynamo
import xla_dynamo.compat


def _frames(device: str) -> int:
    """How many frames Dynamo looks at for a function with a graph break."""

    @torch.compile(backend="xla")
    def places(x: Tensor) -> Tensor:
        x = x + 1
        return x.nonzero() * 2  # a shape that depends on values

    torch._dynamo.reset()
    counters.clear()
    assert places(torch.tensor([-1.0, 0.0, 1.0], device=device)).tolist() == [[2], [4]]
    return counters["frames"]["total"]


def test_kernels_at_a_graph_break() -> None:
    assert _frames("xla:0") == _frames("cpu")
    assert xla_dynamo.counters() == {}  # no fallback
