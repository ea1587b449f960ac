"""Ops whose decomposition in PyTorch is wrong."""

from __future__ import annotations

import torch


def test_threshold_backward_promotes() -> None:
    def function(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.threshold_backward(grad, x, 0.5)

    grad, x = torch.arange(6), torch.tensor([0.2, 0.5, 0.7, float("nan"), 1.0, -1.0])
    compiled = torch.compile(function, backend="xla", fullgraph=True)
    torch.testing.assert_close(compiled(grad, x), function(grad, x), equal_nan=True)
    torch.testing.assert_close(compiled(x, grad), function(x, grad), equal_nan=True)
