"""Sums over the first dimensions of many columns: eager's numbers, and as a product or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import xla_dynamo
from tests.like_eager.compiled import assert_like_eager
from xla_dynamo.backend.passes.lowering import wide_sums

WIDE, MANY = (3, 5, 200, 100), (300, 17000)


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a version whose sums are slow."""
    monkeypatch.setattr(wide_sums, "_IS_SLOW", True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.sum(0), MANY),
        (lambda x: x.sum(0, keepdim=True), WIDE),
        (lambda x: x.sum((1, 0)), WIDE),
        (lambda x: x.sin().sum((-4, -3), keepdim=True).exp(), WIDE),
        (lambda x: x.transpose(0, 1).sum(0), WIDE),
        (lambda x: x.mean(0, keepdim=True) - 1, MANY),
        (lambda x: x.mean((0, 1)), WIDE),
    ],
)
def test_a_product_with_ones(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = torch.randn(shape, dtype=dtype)
    got = torch.compile(function, backend="xla", options={"disk_cache": False})(x)
    torch.testing.assert_close(got, function(x), rtol=1e-5, atol=1e-4)
    assert xla_dynamo.passes()["sum_by_products"].changed == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(1),
        lambda x: x.sum(),
        lambda x: x.sum((0, 3)),
        lambda x: x[:, :, :100].sum((0, 1)),
        lambda x: x[:1].sum(0),
        lambda x: x.long().sum(0),
        lambda x: x.sum(0, dtype=torch.float64),
        lambda x: x.flatten()[0].mean(0),
    ],
)
def test_other_sums_stay(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(WIDE)
    got = torch.compile(function, backend="xla", options={"disk_cache": False})(x)
    torch.testing.assert_close(got, function(x), rtol=1e-5, atol=1e-3)
    assert xla_dynamo.passes()["sum_by_products"].changed == 0


def test_a_mean_is_divided_as_eager_divides() -> None:
    x = torch.full((7, 20000), 3.0)
    assert_like_eager(lambda x: x.mean(0).floor(), x)


def test_special_values() -> None:
    x = torch.ones(4, 20000)
    x[0, 0], x[1, 1], x[2, 2] = torch.inf, -torch.inf, torch.nan
    x[1, 0] = -torch.inf
    assert_like_eager(lambda x: x.sum(0), x)


def test_the_gradient_of_what_a_batch_shares() -> None:
    x, shared = torch.randn(4, 200, 100), torch.randn(200, 100, requires_grad=True)
    assert_like_eager(lambda x, shared: (x * shared.sin()).square().mean(), x, shared)
