"""Quotients by numbers are rounded once, as in eager, whatever the number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import xla_dynamo
import xla_dynamo.compat  # registers the device xla

# Each is a whole number, or ones and zeros, for multiples of 49: 49 * (1 / 49) is less than 1.
WHOLE: dict[str, Callable[[Tensor], Tensor]] = {
    "by a number": lambda x: x / 49,
    "by a filled tensor": lambda x: x / torch.full_like(x, 49),
    "by a negated filled tensor": lambda x: x / -torch.full_like(x, 49),
    "by filled columns": lambda x: x / torch.full((2, 1), 49.0, dtype=x.dtype, device=x.device),
    "by a tensor of one element": lambda x: x / x[:1].abs().amin(),
    "by one without dimensions, of another dtype": lambda x: x / torch.tensor(49).to(x.device),
    "integers": lambda x: x.long() / 49.0,
    "to zero": lambda x: torch.div(x, 49.0, rounding_mode="trunc"),
    "down": lambda x: (x / 49).floor(),
    "to integers": lambda x: (x / 49).int(),
    "of what is spread": lambda x: x.expand(3, 4) / 49,
    "in place": lambda x: x.clone().div_(49),
    "by two numbers": lambda x: (x / 7 / 7).floor(),
    "a mean": lambda x: torch.ones_like(x).repeat(49).mean(),
    "means of rows": lambda x: x[:, None].expand(4, 49).mean(1),
    "a deviation": lambda x: torch.ones_like(x).expand(49, 4).std(0),
    "moments": lambda x: torch.var_mean(x.expand(49, 4), 0)[1],
}


def _both_doors(function: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    compiled = torch.compile(function, backend="xla", fullgraph=True)
    return [compiled(x), function(x.to("xla")).cpu()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", WHOLE)
def test_whole_quotients_are_exact(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([49.0, 98.0, -147.0, 294.0], dtype=dtype)
    expected = WHOLE[name](x)
    assert expected.equal(expected.round())
    for actual in _both_doors(WHOLE[name], x):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("number", [3, 41, 49, 255, 0.1, -1e-3, 1e30])
def test_quotients_by_numbers_are_those_of_eager(number: float) -> None:
    x = torch.randn(1000, dtype=torch.float64)
    for actual in _both_doors(lambda x: x / number, x):
        assert actual.equal(x / number)


def test_a_divisor_of_the_cpu_divides_device_tensors_in_a_compiled_program() -> None:
    x, number = torch.tensor([49.0, 98.0]), torch.tensor(49)
    compiled = torch.compile(lambda x, number: (x / 49, x / number), backend="xla", fullgraph=True)
    for actual in compiled(x.to("xla"), number):
        assert actual.device == torch.device("xla:0")
        assert actual.cpu().equal(x / 49)


@pytest.mark.parametrize("columns", [41, 49])
def test_ones_are_normalized_to_zeros(columns: int) -> None:
    x = torch.ones(2, columns)
    for actual in _both_doors(lambda x: F.layer_norm(x, (columns,), eps=1e-12), x):
        assert not actual.any()


def test_quotients_of_quotients() -> None:
    x = torch.tensor([1e200, -1e-200, 3.0, 0.0], dtype=torch.float64)
    for function in (lambda x: x / x / x, lambda x: x / (x / x), lambda x: -(x / x[:1]) / x[:1]):
        for actual in _both_doors(function, x):
            torch.testing.assert_close(actual, function(x), rtol=1e-15, atol=0, equal_nan=True)


def test_the_gradient_of_a_mean() -> None:
    x = torch.randn(7, 7, requires_grad=True)
    torch.compile(lambda x: (x * x).sum(1).expand(3, 7).mean() / 3, backend="xla")(x).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach() / 21)


@pytest.mark.parametrize("number", [2, 0.25, 1, -8, 0, float("inf")])
def test_numbers_with_exact_reciprocals_get_no_barrier(number: float) -> None:
    with xla_dynamo.capture() as stages:
        torch.compile(lambda x: x / number, backend="xla")(torch.ones(3))
    assert "barrier" not in stages[0].stablehlo


@pytest.mark.parametrize("number", [1e38, torch.finfo(torch.float32).max, -3e38, float("inf")])
def test_a_divisor_without_a_reciprocal(number: float) -> None:
    x = torch.tensor([3e38, 1e10, -1e5, float("inf"), float("nan")])

    def function(x: Tensor) -> Tensor:
        rows = x / torch.full((2, 1), number, device=x.device)
        return (x / number) * 1e30 + x / torch.full_like(x, number) - rows[1] / 3

    for actual in (torch.compile(function, backend="xla")(x), function(x.to("xla")).cpu()):
        torch.testing.assert_close(actual, function(x), equal_nan=True, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("zero", [0, 0.0, 0j])
def test_complex_numbers_divided_by_zero(zero: complex) -> None:
    x = torch.tensor([1j, 2 + 1j, 0j, -1 + 0j])
    for actual in (torch.compile(lambda x: x / zero, backend="xla")(x), (x.to("xla") / zero).cpu()):
        torch.testing.assert_close(actual, x / zero, equal_nan=True)
