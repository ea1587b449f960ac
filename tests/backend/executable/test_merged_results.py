"""Maps that a program returns have one dimension for all of a map; tensors have eager's sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xla_dynamo

N, C, H, W = 2, 24, 14, 14
MERGED = f"tensor<{N}x{C}x{H * W}xf32>"
Program = Callable[[Tensor, Tensor], Tensor]
PAYS: dict[str, Program] = {
    "an activation": lambda x, c: F.silu(x),
    "a value for each channel": lambda x, c: F.softplus(x * c + c),
    "an average of all maps": lambda x, c: x - x.tanh().mean((2, 3), keepdim=True),
}
LEFT: dict[str, Program] = {
    "a pad": lambda x, c: F.silu(F.pad(x, (1, 1))),
    "transposed maps": lambda x, c: x.mT.exp() * x,
    "a long row": lambda x, c: x.reshape(N, C, 2, -1).exp(),
    "a small map": lambda x, c: x.reshape(N, -1, 4, 4).exp(),
    "few elements": lambda x, c: x[:1, :1].exp(),
    "a sum": lambda x, c: x.exp().sum((2, 3)),
    "a product": lambda x, c: x @ x,
}


def like_eager(program: Program) -> str:
    """Compare with eager; the StableHLO."""
    torch.manual_seed(0)
    x, c = torch.randn(N, C, H, W), torch.rand(C, 1, 1)
    with xla_dynamo.capture() as stages:
        got = torch.compile(program, backend="xla", options={"disk_cache": False})(x, c)
    want = program(x, c)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert got.stride() == want.stride()
    got.add_(1)  # it is no view
    return stages[0].stablehlo


@pytest.mark.parametrize("program", PAYS.values(), ids=PAYS)
def test_maps_are_merged(program: Program) -> None:
    assert f"-> {MERGED}" in like_eager(program).replace("(", "").replace("{jax", "")


@pytest.mark.parametrize("program", LEFT.values(), ids=LEFT)
def test_others_are_not(program: Program) -> None:
    assert MERGED not in like_eager(program)


def test_a_map_that_a_pool_reads_too_stays() -> None:
    """XLA would compute it twice."""

    def program(x: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        y = F.relu(x * c + c / 3)
        return y, *F.max_pool2d(y, 2, return_indices=True)

    x, c = torch.randn(N, C, H, W), torch.rand(C, 1, 1)
    with xla_dynamo.capture() as stages:
        got = torch.compile(program, backend="xla", options={"disk_cache": False})(x, c)
    torch.testing.assert_close(got, program(x, c))
    assert MERGED not in stages[0].stablehlo


def test_outputs_that_share_memory_still_do() -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        y = x.sigmoid()
        return y, y.mT, y

    x = torch.randn(N, C, H, W)
    outputs = torch.compile(program, backend="xla", options={"disk_cache": False})(x)
    for got, want in zip(outputs, program(x), strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
    outputs[0].fill_(3)
    assert all(bool((each == 3).all()) for each in outputs)


def test_an_argument_that_is_written_to_keeps_its_memory() -> None:
    x = torch.randn(N, C, H, W)
    want, address = F.silu(x), x.data_ptr()
    compiled = torch.compile(
        lambda x: x.copy_(F.silu(x)).sum(), backend="xla", options={"disk_cache": False}
    )
    torch.testing.assert_close(compiled(x), want.sum())
    torch.testing.assert_close(x, want)
    assert x.data_ptr() == address


@pytest.mark.parametrize("training", [True, False])
def test_maps_that_backward_reads(training: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.SiLU(), nn.BatchNorm2d(C), nn.Mish()) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    compiled = torch.compile(layers[1], backend="xla", options={"disk_cache": False})
    found = []
    for layer, function in zip(layers, (layers[0], compiled), strict=True):
        layer.train(training)
        leaf = torch.linspace(-3, 3, N * C * H * W).view(N, C, H, W).requires_grad_()
        function(leaf).square().sum().backward()
        found.append([leaf.grad, *(p.grad for p in layer.parameters()), *layer.buffers()])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    assert found[1][0].stride() == found[0][0].stride()


def test_images_in_channels_last_memory() -> None:
    x = torch.randn(N, C, H, W).to(memory_format=torch.channels_last)
    got = torch.compile(F.silu, backend="xla", options={"disk_cache": False})(x)
    torch.testing.assert_close(got, F.silu(x))
    assert got.stride() == x.stride()
