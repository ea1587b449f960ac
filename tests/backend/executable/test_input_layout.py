"""Arguments that are not row-major reach a program without a copy, with eager's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Node

from tests.backend.seen_ops import Seen
from xla_dynamo.backend.executable import torch_kernels

COPIES = ("aten.clone", "aten.copy_", "aten.contiguous")


def _copies(function: Callable[..., Any], *arguments: Tensor) -> list[str]:
    """The ops that copy memory in a call which repeats."""
    function(*arguments)
    with Seen() as seen:
        function(*arguments)
    return [op for op in seen.ops if op.startswith(COPIES)]


ARGUMENTS = {
    "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": torch.randn(3, 5, 4).transpose(1, 2),
    "permuted": torch.randn(4, 2, 5, 3).permute(3, 1, 0, 2),
    "complex": torch.randn(4, 3, dtype=torch.complex64).T,
    "conjugate": torch.randn(4, 3, dtype=torch.complex64).T.conj(),
    "bfloat16": torch.randn(4, 3).bfloat16().T,
    "strided": torch.randn(4, 6)[:, ::2],
    "expanded": torch.randn(4, 1).expand(4, 3),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_values_and_strides_are_those_of_eager(name: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x + 1, x.reshape(-1).cumsum(0)

    x = ARGUMENTS[name]
    compiled = torch.compile(function, backend="xla", dynamic=False)
    for want, got in zip(function(x), compiled(x), strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("name", ["channels_last", "transposed", "permuted", "complex", "bfloat16"])
def test_dense_arguments_are_not_copied(name: str) -> None:
    compiled = torch.compile(lambda x: (x * 2).sum(), backend="xla", dynamic=False)
    with torch.no_grad():
        assert _copies(compiled, ARGUMENTS[name]) == []


def test_another_layout_later_is_read_right() -> None:
    """Dynamo compiles for it anew; an array that a kernel gave another layout is copied."""
    compiled = torch.compile(lambda x: x.flatten(), backend="xla", dynamic=False)
    x = torch.arange(24.0).reshape(2, 3, 4)
    for tensor in (x.transpose(1, 2), x.transpose(1, 2).contiguous(), x.permute(2, 0, 1)):
        assert compiled(tensor).equal(tensor.flatten())


def test_a_parameter_that_is_updated_in_place_keeps_its_layout() -> None:
    weight = torch.randn(64, 32).T.clone(memory_format=torch.preserve_format).requires_grad_()
    assert not weight.is_contiguous()
    want = weight.detach() - 0.1 * torch.ones(32, 64)

    @torch.compile(backend="xla")
    def step() -> None:
        with torch.no_grad():
            weight.sub_(0.1)

    step()
    torch.testing.assert_close(weight.detach(), want)
    assert weight.stride() == (1, 32)


def test_kernels_get_the_layout_of_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of ConvNeXt: its convolution is fast in channels_last only."""
    torch.manual_seed(0)
    convolutions = nn.ModuleList(nn.Conv2d(32, 32, 7, padding=3, groups=32) for _ in range(2))
    mix = nn.Linear(32, 32)

    def network(x: Tensor) -> Tensor:
        for convolution in convolutions:
            x = x + mix(convolution(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x.square().mean()

    images: list[Tensor] = []
    original = torch_kernels.kernel

    def kernel(node: Node) -> Callable[..., Any]:
        run = original(node)

        def noted(*arguments: Any) -> Any:
            images.extend(a for a in arguments if isinstance(a, Tensor) and a.shape == x.shape)
            return run(*arguments)

        return noted if "convolution" in str(node.target) else run

    monkeypatch.setattr(torch_kernels, "kernel", kernel)
    x = torch.randn(16, 32, 16, 16).to(memory_format=torch.channels_last)
    parameters = [*convolutions.parameters(), *mix.parameters()]
    want = torch.autograd.grad(network(x), parameters)
    compiled = torch.compile(network, backend="xla")
    got = torch.autograd.grad(compiled(x), parameters)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert len(images) == 6  # one of each convolution, two of each gradient
    assert all(image.is_contiguous(memory_format=torch.channels_last) for image in images)


def test_what_forward_saved_is_not_copied() -> None:
    """It has a transpose's strides in eager, and is row-major here."""
    compiled = torch.compile(lambda x: x.transpose(1, 2).sigmoid().sum(), backend="xla")
    x = torch.randn(2, 3, 4, requires_grad=True)

    compiled(x).backward()
    loss = compiled(x)
    with torch.profiler.profile() as profile:  # modes see nothing of backward
        loss.backward()
    assert "aten::clone" not in {event.key for event in profile.key_averages()}
