"""What XLA would merge as if floats were real numbers comes out as in eager."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import xla_dynamo
import xla_dynamo.compat  # registers the device xla

BIG = 12582912.0  # 1.5 * 2**23: adding it rounds a float32 to an integer

CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "rounds": lambda x: (x + BIG) - BIG,
    "rounds, the other way": lambda x: (x - BIG) + BIG,
    "rounds the negative": lambda x: (BIG - x) - BIG,
    "rounds, number first": lambda x: BIG + (x - BIG),
    "through a transposed view": lambda x: (x.view(2, 5) + BIG).t() - BIG,
    "through a broadcast": lambda x: (x + BIG).expand(3, -1) - BIG,
    "through two signs": lambda x: torch.neg(torch.neg(x + BIG)) - BIG,
    "filled tensors": lambda x: (x + torch.full_like(x, BIG)) - torch.full((10,), BIG).to(x.device),
    "zeros, and -0.0": lambda x: torch.signbit(torch.zeros(10, device=x.device) + x),
    "-0.0, and zeros": lambda x: torch.signbit(x[:, None] + x.new_zeros(3)),
    "-0.0, and a zero of another dtype": lambda x: torch.signbit(x.float() + torch.zeros_like(x)),
    "-0.0, and -0.0": lambda x: torch.signbit(x + torch.full_like(x, -0.0)),
    "-0.0, added to negative zeros": lambda x: torch.signbit(x + (-torch.zeros_like(x))),
    "a sum that begins with zeros": lambda x: torch.signbit(torch.zeros_like(x).add_(x)),
    "complex zeros": lambda x: torch.signbit(
        torch.view_as_real(torch.complex(x, x) + torch.zeros(10, dtype=torch.cfloat).to(x.device))
    ),
    "a sign of zero": lambda x: torch.signbit((x + 1) - 1),
    "factors that overflow": lambda x: x * 1e30 * 1e30 * 1e-37,
    "factors that cancel": lambda x: x * 1e30 * 1e30 * 1e-30 * 1e-30,
    "quotients that vanish": lambda x: x / 1e30 / 1e30 * 1e37,
    "a quotient and a factor": lambda x: x / 1e-30 / 1e-30 * 1e-37,
    "log of a power": lambda x: torch.log(x**2.5),
    "log of powers": lambda x: torch.log(x ** torch.full_like(x, 3.0)),
    "log2 of powers": lambda x: torch.log2(torch.pow(x, x.round())),
    "log10 of a power of a number": lambda x: torch.log10(torch.pow(-2.0, x.round())),
    "log of a reciprocal root": lambda x: torch.log(torch.rsqrt(x)),
    "power of an exponential": lambda x: torch.exp(x) ** torch.zeros_like(x),
    "power of a view of one": lambda x: torch.exp(x)[2:] ** 0.5,
}


@pytest.fixture
def x() -> Tensor:
    inf = float("inf")
    return torch.tensor([0.3, 1.7, -2.6, -3.0, -0.0, 1e-20, 100.0, inf, -inf, float("nan")])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_both_doors_give_what_eager_gives(name: str, x: Tensor, dtype: torch.dtype) -> None:
    function, x = CASES[name], x.to(dtype)
    expected = function(x)
    for actual in (torch.compile(function, backend="xla")(x), function(x.to("xla")).cpu()):
        torch.testing.assert_close(actual, expected, equal_nan=True)


def test_gradients_pass_a_barrier() -> None:
    x = torch.tensor([0.3, 1.7], requires_grad=True)
    torch.compile(lambda x: ((x + BIG) - BIG) * x, backend="xla")(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([0.0, 2.0]) + x.detach())


@pytest.mark.parametrize("op", [operator.add, operator.mul])
def test_constants_of_moderate_size_are_left_to_xla(op: Callable[..., Tensor]) -> None:
    with xla_dynamo.capture() as stages:
        torch.compile(lambda x: op(op(x, 0.5), 3.0), backend="xla")(torch.ones(3))
    assert "barrier" not in stages[0].stablehlo
