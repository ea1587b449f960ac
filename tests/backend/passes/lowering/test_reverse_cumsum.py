"""The gradient of a cumulative sum is one sum from the end; other reversals stay."""

from __future__ import annotations

import pytest
import torch

import xla_dynamo
from tests.like_eager.compiled import assert_like_eager

aten = torch.ops.aten


@pytest.mark.parametrize("dim", [0, -1])
def test_gradient_of_cumsum(dim: int) -> None:
    x = torch.randn(5, 37, dtype=torch.float64, requires_grad=True)
    with xla_dynamo.capture() as stages:
        assert_like_eager(lambda x: torch.cumsum(x, dim).square(), x)
    assert "@xla_dynamo.reverse_cumsum" in stages[-1].stablehlo
    assert "stablehlo.reverse" not in stages[-1].stablehlo


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.flip(1).cumsum(1).flip(1),
        lambda x: x.flip(-1).cumsum(1).flip(1),
        lambda x: x.flip(0).cumsum(1).flip(0),
        lambda x: x.flip(0, 1).cumsum(1).flip(0, 1),
        lambda x: x.flip(1).cumsum(1).flip(0),
        lambda x: x.flip(1).cumsum(1, dtype=torch.float32).flip(1),
        lambda x: torch.stack([t := x.flip(1).cumsum(1), t.flip(1)]),
        lambda x: (x * 10).long().flip(0).cumsum(0).flip(0),
        lambda x: x[:, :0].flip(1).cumsum(1).flip(1),
        lambda x: x[0, 0].flip(()).cumsum(0),
    ],
)
def test_reversals(program) -> None:
    assert_like_eager(program, torch.randn(4, 6, dtype=torch.float64))
