"""Programs of narrow products are compiled without YNNPACK's: eager's numbers, and which ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xla_dynamo.backend.executable import ynnpack
from xla_dynamo.backend.lowering import host_products
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.backend.runtime.wrong_fusions import OPTION

SUMS = "LIBRARY_FUSION_TYPE_REDUCE"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """What YNNPACK got in each of XLA's compiles: kinds of fusion, "" for none, None for all."""
    monkeypatch.setattr(host_products, "mkl", lambda: None)  # whose products are MKL's
    seen: list[str | None] = []
    usual = pjrt._options

    def options(on, overrides):
        seen.append(overrides.get(OPTION))
        return usual(on, overrides)

    monkeypatch.setattr(pjrt, "_options", options)
    return seen


class Mlp(nn.Module):
    """The norm, the products and the activation of a block of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def known(*kinds: str | None) -> list[str | None]:
    """`kinds` where this jaxlib is known, else None for each."""
    return list(kinds) if ynnpack._IS_KNOWN else [None] * len(kinds)


@pytest.mark.parametrize("shape", [(2, 32, 32, 48), (4, 784, 96), (8192, 16)])
def test_narrow_products(shape: tuple[int, ...], compiled: list[str | None]) -> None:
    mlp = Mlp(shape[-1])
    x = torch.randn(shape, requires_grad=True)
    results = []
    for function in (mlp, torch.compile(mlp, backend="xla")):
        out = function(x)
        results.append((out, *torch.autograd.grad(out.square().mean(), (x, *mlp.parameters()))))
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert compiled == known("", SUMS)  # rows are added up in the gradients of the biases


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        pytest.param(lambda x, w: x @ w, [(512, 64), (64, 256)], id="few rows"),
        pytest.param(F.linear, [(4, 1024), (4096, 1024)], id="few rows, many columns"),
        pytest.param(F.linear, [(64, 9216), (128, 9216)], id="few rows, long sums"),
        pytest.param(lambda x, w: x @ w, [(2048, 512), (512, 256)], id="a large matrix"),
        pytest.param(lambda x, w: (x @ w).softmax(-1), [(4096, 8), (8, 8)], id="little work"),
        pytest.param(lambda x, w: x.softmax(-1) + w, [(4096, 64), (64,)], id="no product"),
        pytest.param(
            lambda x, w: F.conv2d((x @ w)[None, None], w[None, None, :3, :3]).relu(),
            [(4096, 64), (64, 64)],
            id="a convolution",
        ),
    ],
)
def test_other_programs_are_as_xla_likes_them(
    function: Callable[..., Tensor], shapes: list[tuple[int, ...]], compiled: list[str | None]
) -> None:
    args = [torch.randn(shape) / shape[-1] ** 0.5 for shape in shapes]
    got = torch.compile(function, backend="xla")(*args)
    torch.testing.assert_close(got, function(*args), rtol=1e-4, atol=1e-4)
    assert set(compiled) == {None}


def test_batches_and_other_dtypes_are_as_xla_likes_them(compiled: list[str | None]) -> None:
    def scores(q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.transpose(-1, -2)).softmax(-1)

    q, k = torch.randn(8, 256, 64), torch.randn(8, 256, 64)
    torch.testing.assert_close(torch.compile(scores, backend="xla")(q, k), scores(q, k))
    x, w = torch.randn(4096, 64).double(), torch.randn(64, 64).double()
    torch.testing.assert_close(torch.compile(torch.mm, backend="xla")(x, w), x @ w)
    assert set(compiled) == {None}


def test_the_word_of_the_user_holds(compiled: list[str | None]) -> None:
    chosen = {"compiler_options": {OPTION: "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}}
    x, w = torch.randn(4096, 64), torch.randn(64, 64)
    torch.testing.assert_close(torch.compile(torch.mm, backend="xla", options=chosen)(x, w), x @ w)
    assert compiled == ["LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"]
