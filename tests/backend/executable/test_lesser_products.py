"""Products that are PyTorch's where what lies between them is small: eager's numbers, and which."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xla_dynamo
import xla_dynamo.compat
from xla_dynamo.backend.executable import torch_kernels
from xla_dynamo.backend.lowering import host_products

PRODUCTS = ("addmm.default", "mm.default")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The products of which kernels are made, where MKL is the fastest."""
    monkeypatch.setattr(host_products, "mkl", lambda: host_products.AVX512)
    found: list[str] = []
    original = torch_kernels.kernel

    def kernel(node: Any) -> Any:
        found.append(str(node.target).removeprefix("aten."))
        return original(node)

    monkeypatch.setattr(torch_kernels, "kernel", kernel)
    return found


class Block(nn.Module):
    """A transformer's, without attention: norms, products and activations."""

    def __init__(self, width: int, activation: Any = F.gelu) -> None:
        super().__init__()
        self.norm, self.activation = nn.LayerNorm(width), activation
        self.mix, self.up = nn.Linear(width, width), nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.norm(x))
        return x + self.down(self.activation(self.up(self.norm(x))))


def _results(function: Any, network: nn.Module, x: Tensor) -> list[Tensor]:
    given = x.clone().requires_grad_()
    out = function(given)
    return [out, *torch.autograd.grad(out.square().mean(), (given, *network.parameters()))]


@pytest.mark.parametrize("activation", [F.gelu, F.silu, F.relu, torch.tanh])
def test_a_transformer_s_products(kernels: list[str], activation: Any) -> None:
    network = nn.Sequential(*(Block(256, activation) for _ in range(2)))
    x = torch.randn(4, 128, 256)
    want = _results(network, network, x)
    for got, expected in zip(
        _results(torch.compile(network, backend="xla"), network, x), want, strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        assert got.stride() == expected.stride()
    assert kernels.count("addmm.default") == 6
    assert kernels.count("mm.default") == 12  # their gradients
    assert len(xla_dynamo.compiles()) == 2


def test_without_avx512_large_products_stay_xla_s(
    kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_products, "mkl", lambda: host_products.AVX2)
    network = nn.Sequential(*(Block(256) for _ in range(2)), nn.Linear(256, 4096))
    x = torch.randn(4, 128, 256)
    with torch.no_grad():
        got = torch.compile(network, backend="xla")(x)
        torch.testing.assert_close(got, network(x), rtol=1e-4, atol=1e-5)
    assert kernels.count("addmm.default") == 6  # all but the last one


def test_inference_in_turns_of_changed_weights(kernels: list[str]) -> None:
    network = Block(256)
    compiled = torch.compile(network, backend="xla")
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 128, 256)
            torch.testing.assert_close(compiled(x), network(x), rtol=1e-4, atol=1e-5)
            network.up.weight.mul_(1.1)
    assert kernels.count("addmm.default") == 3


def test_a_training_step_of_the_lazy_device(kernels: list[str]) -> None:
    torch.manual_seed(0)
    network = Block(256)
    lazily = Block(256).to("xla")
    lazily.load_state_dict(network.state_dict())
    x = torch.randn(4, 128, 256)
    for model, given in ((network, x), (lazily, x.to("xla"))):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            model(given).square().mean().backward()
            optimizer.step()
    for want, got in zip(network.parameters(), lazily.parameters(), strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    assert set(PRODUCTS) <= set(kernels)


@pytest.mark.parametrize(
    "width",
    [
        pytest.param(32, id="little work"),
        pytest.param(256, id="much between"),
    ],
)
def test_products_that_save_less_than_programs_cost(kernels: list[str], width: int) -> None:
    weights = [torch.randn(width, width) / width for _ in range(3)]

    def waves(x: Tensor) -> Tensor:
        for weight in weights:
            x = (x @ weight).asinh().flip(1)
        return x

    x = torch.randn(512, width)
    got = torch.compile(waves, backend="xla")(x)
    torch.testing.assert_close(got, waves(x), rtol=1e-4, atol=1e-4)
    assert kernels == []


def test_other_cpus_keep_their_programs(
    kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_products, "mkl", lambda: None)
    network = Block(256)
    x = torch.randn(4, 128, 256)
    torch.testing.assert_close(torch.compile(network, backend="xla")(x), network(x))
    assert kernels == []
