"""Which depthwise convolutions of few taps are PyTorch's: those of some work, beside MKL."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.backend.lowering.same_gradients import assert_same
from xla_dynamo.backend.lowering import host_products


@pytest.mark.parametrize("has_mkl", [False, True])  # lowered functions are kept
@pytest.mark.parametrize(
    ("images", "kernels"), [(1, []), (4, ["convolution", "convolution_backward"])]
)
def test_depthwise_convolutions(
    images: int,
    kernels: list[str],
    has_mkl: bool,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    products = host_products.AVX512 if has_mkl else None
    monkeypatch.setattr(host_products, "mkl", lambda: products)
    torch.manual_seed(0)
    layer = nn.Conv2d(64, 64, 3, padding=1, groups=64)
    leaves = [torch.randn(images, 64, 24, 24).requires_grad_(), *layer.parameters()]

    def convolution(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return layer(x * 2) * 3

    compiled = torch.compile(convolution, backend="xla", options={"disk_cache": False})
    assert_same(convolution, compiled, leaves, 1e-4)
    assert [call.removesuffix(".default") for call in calls] == kernels * has_mkl
