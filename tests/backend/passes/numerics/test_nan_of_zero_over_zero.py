"""0 / 0 is nan, also where a compiler sees that the zeros are zeros and the divisors integers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import xla_dynamo
import xla_dynamo.compat  # registers the device xla

# Of integers and floats, each with two zeros. A product is where the nan is lost.
CASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "zeros by integers": lambda i, x: torch.zeros_like(x) / i * x,
    "the number 0 by integers": lambda i, x: 0 / i * x,
    "by converted integers": lambda i, x: torch.zeros_like(x) / i.to(x.dtype) * 3,
    "by what is computed of integers": lambda i, x: x.new_zeros(4) / (i.to(x.dtype) - 1).abs() * x,
    "integers by integers": lambda i, x: i * 0 / i * x,
    "a mean of nothing": lambda i, x: x[:0].sum() / (i > 5).sum() * x,
    "a column by a row": lambda i, x: torch.zeros_like(x)[:, None] / i * x,
    "negative zeros": lambda i, x: torch.full_like(x, -0.0) / (i - 1) * x,
    "rounded down": lambda i, x: torch.div(torch.zeros_like(x), i, rounding_mode="floor") * x,
    "rounded to zero": lambda i, x: torch.div(torch.zeros_like(x), i, rounding_mode="trunc") * x,
    "floor_divide": lambda i, x: torch.zeros_like(x) // i * x,
    "addcdiv": lambda i, x: torch.addcdiv(x, torch.zeros_like(x), i.to(x.dtype)) * x,
    "a truth": lambda i, x: (torch.zeros_like(x) / i).bool(),
    "half precision": lambda i, x: torch.zeros_like(x).bfloat16() / i * 3,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_both_doors_give_what_eager_gives(name: str, dtype: torch.dtype) -> None:
    i, x = torch.tensor([0, 0, 1, 2]), torch.tensor([0.0, 1.5, 2.0, 0.0], dtype=dtype)
    function = CASES[name]
    expected = function(i, x)
    compiled = torch.compile(function, backend="xla", fullgraph=True)
    lazy = function(i.to("xla"), x.to("xla")).cpu()
    for actual in (compiled(i, x), lazy):
        torch.testing.assert_close(actual, expected, equal_nan=True)
        numbers = ~expected.isnan()
        assert actual[numbers].signbit().equal(expected[numbers].signbit())


def test_the_gradient_of_a_minimum_that_nothing_equals() -> None:
    def gradient(device: str) -> Tensor:
        x = torch.tensor([[1.0, 2.0], [float("nan"), 1.0]], device=device, requires_grad=True)
        rows = x.aminmax(dim=1, keepdim=True)[0]
        return torch.autograd.grad(rows.expand(0, 2, 1), x, torch.zeros(0, 2, 1).to(device))[0]

    torch.testing.assert_close(gradient("xla").cpu(), gradient("cpu"), equal_nan=True)


def test_quotients_of_floats_are_left_alone() -> None:
    with xla_dynamo.capture() as stages:
        torch.compile(lambda x, i: x / i, backend="xla")(torch.ones(3), torch.ones(3).long())
    assert "select" not in stages[0].stablehlo
