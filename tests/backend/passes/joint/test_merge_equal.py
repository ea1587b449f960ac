"""Equal ops become one, and only equal ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.backend.graphs import context, traced
from xla_dynamo.backend.passes.joint.merge_equal import merge_equal

X = torch.randn(3, 4)
MERGED: dict[str, Callable[[Tensor], Any]] = {
    "an op": lambda x: x.sin() + x.sin() * 2,
    "a chain": lambda x: x.sin().cos() + x.sin().cos() * 2,
    "with arguments": lambda x: x.sum(1, keepdim=True) + x.sum(1, keepdim=True) * 2,
}
APART: dict[str, Callable[[Tensor], Any]] = {
    "results": lambda x: (x.sin(), x.sin()),
    "1 and 1.0": lambda x: x + 1 + (x + 1.0) * 2,
    "1 and True": lambda x: torch.full_like(x, 1) + torch.full_like(x, True) * 2,
    "zeros with signs": lambda x: torch.full_like(x, 0.0) / torch.full_like(x, -0.0),
    "random numbers": lambda x: torch.rand_like(x) + torch.rand_like(x) * 2,
    "dtypes": lambda x: x.to(torch.float64) + x.to(torch.int64),
    "other inputs": lambda x: x[0].sin() + x[1].sin() * 2,
}


@pytest.mark.parametrize("name", MERGED)
def test_equal_ops_are_merged(name: str) -> None:
    module = traced(MERGED[name], X)
    before = len(module.graph.nodes)
    assert merge_equal(module.graph, context())
    assert len(module.graph.nodes) < before
    module.recompile()
    torch.testing.assert_close(module(X)[0], MERGED[name](X))


@pytest.mark.parametrize("name", APART)
def test_others_stay_apart(name: str) -> None:
    module = traced(APART[name], X)
    before = [node.target for node in module.graph.nodes]
    merge_equal(module.graph, context())
    kept = [node.target for node in module.graph.nodes]
    assert [kept.count(target) for target in kept] == [before.count(target) for target in kept]


def test_training_imports_no_inductor_lowerings() -> None:
    program = (
        "import sys, torch\n"
        "layer = torch.compile(torch.nn.Linear(2, 2), backend='xla')\n"
        "layer(torch.ones(2, 2)).sum().backward()\n"
        "assert 'xla_dynamo.backend.pipeline' in sys.modules\n"
        "assert 'torch._inductor.lowering' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
