"""Which calls beside a kernel cost PyTorch more than a program."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

LAYOUTS = [
    (torch.contiguous_format, 2, True),
    (torch.contiguous_format, 1, False),
    (torch.channels_last, 1, False),
]


class Pooled(nn.Module):
    """Down and up again, as a U-Net; its last convolution is too small for a kernel.

    With convolutions of groups, row-major images stay so.
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(16, 16, 3, padding=1, groups=groups) for _ in range(2))
        self.last = nn.Conv2d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(F.silu(self.first(x)), 2)
        y = F.interpolate(self.second(y), scale_factor=2.0)
        return F.mse_loss(self.last(y), x[:, :1])


@pytest.mark.parametrize(("memory_format", "groups", "has_programs"), LAYOUTS)
def test_windows_with_channels_last_are_pytorchs(
    memory_format: torch.memory_format, groups: int, has_programs: bool, launches: list[str]
) -> None:
    network = Pooled(groups).to(memory_format=memory_format)
    compiled = torch.compile(network, backend="xla", options={"disk_cache": False})
    x = torch.randn(4, 16, 64, 64).to(memory_format=memory_format)
    results = []
    for function in (network, compiled):
        loss = function(x)
        results.append((loss, *torch.autograd.grad(loss, tuple(network.parameters()))))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert bool(launches) == has_programs


def test_other_dtypes_and_large_products_are_programs(launches: list[str]) -> None:
    layer, head = nn.Conv2d(32, 32, 3), torch.randn(32, 2)

    def rounded(x: Tensor) -> Tensor:
        return layer(x).to(torch.int32)

    def mixed(x: Tensor) -> Tensor:
        return layer(x).to(torch.bfloat16).movedim(1, 3) @ head.to(torch.bfloat16)

    x = torch.randn(4, 32, 16, 16)
    for function in (rounded, mixed):
        launches.clear()
        compiled = torch.compile(function, backend="xla", options={"disk_cache": False})
        with torch.no_grad():
            got, want = compiled(x), function(x)
        torch.testing.assert_close(
            got, want, rtol=1e-2, atol=1 if got.dtype == torch.int32 else 0.1
        )
        assert len(launches) == 1
