"""What programs for the CPU leave to PyTorch's kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from torch.fx import Node

from xla_dynamo.backend.executable import torch_kernels
from xla_dynamo.backend.graph import kernel_calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ops that programs leave to PyTorch: between them, or "in" them."""
    made: list[str] = []
    within, between = kernel_calls.decoded, torch_kernels.kernel

    def decoded(call: bytes) -> kernel_calls.Kernel:
        made.append(f"in {json.loads(call)[0]}")
        return within(call)

    def kernel(node: Node) -> Callable[..., Any]:
        made.append(str(node.target).removeprefix("aten."))
        return between(node)

    monkeypatch.setattr(kernel_calls, "decoded", decoded)
    monkeypatch.setattr(torch_kernels, "kernel", kernel)
    return made
