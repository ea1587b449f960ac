"""What programs for the CPU leave to PyTorch's kernels."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
from torch.fx import Node

from xla_dynamo.backend.executable import small_parts, torch_kernels
from xla_dynamo.backend.graph import kernel_calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ops that programs leave to PyTorch: between them, or "in" them.

    Without what comes with them because it is small.
    """
    made: list[str] = []
    small: set[Node] = set()
    within, between, opened = kernel_calls.decoded, torch_kernels.kernel, small_parts.opened

    def decoded(call: bytes) -> kernel_calls.Kernel:
        made.append(f"in {json.loads(call)[0]}")
        return within(call)

    def kernel(node: Node) -> Callable[..., Any]:
        if node not in small:
            made.append(str(node.target).removeprefix("aten."))
        return between(node)

    def noted(steps: Sequence[Any], kernels: Collection[Node]) -> tuple[list[Any], list[Node]]:
        found, calls = opened(steps, kernels)
        small.update(calls)
        return found, calls

    monkeypatch.setattr(kernel_calls, "decoded", decoded)
    monkeypatch.setattr(torch_kernels, "kernel", kernel)
    monkeypatch.setattr(small_parts, "opened", noted)
    return made
