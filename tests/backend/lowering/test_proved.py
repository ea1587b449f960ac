"""Which ops of a graph are known to compile for a TPU, by the table of the sweep."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from xla_dynamo.backend import ops as _ops  # noqa: F401  (their names)
from xla_dynamo.backend.lowering import proved

pytestmark = pytest.mark.spine


def unproved(function: Any, *inputs: torch.Tensor, platform: str = "tpu") -> list[str]:
    graph = make_fx(function, tracing_mode="fake")(*inputs).graph
    return [proved.name(node) for node in proved.unproved(graph, platform)]


def test_ops_and_dtypes() -> None:
    x = torch.randn(4)
    for dtype in (torch.float32, torch.bfloat16):
        assert unproved(lambda x: x.tanh() + x, x.to(dtype)) == []
    assert unproved(lambda x: x.tanh() + x, x.double()) == ["aten.tanh.default", "aten.add.Tensor"]
    assert unproved(torch.linalg.eigvals, torch.eye(3)) == ["aten.linalg_eig.default"]


def test_ops_that_no_program_had_come_first() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigvals(x.tanh())

    names = unproved(run, torch.eye(3).double())
    assert names == ["aten.linalg_eig.default", "aten.tanh.default"]


def test_nothing_is_known_of_other_platforms() -> None:
    assert unproved(torch.tanh, torch.randn(4), platform="cuda") == ["aten.tanh.default"]


def test_the_table_is_of_ops_that_exist() -> None:
    for name in json.loads(proved.FILES["tpu"].read_text()):
        space, op, overload = name.split(".")
        if space != "torch_nn":  # PyTorch registers those when they are needed
            assert hasattr(getattr(getattr(torch.ops, space), op), overload), name
