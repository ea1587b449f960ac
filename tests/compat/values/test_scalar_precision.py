"""Python numbers of a trace enter ops in the precision of eager's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

BIG = 2**24 + 1  # no float32
WIDE = torch.float64

CASES: dict[str, Callable[[str], Tensor]] = {
    "full": lambda d: torch.full((2,), 0.1, dtype=WIDE, device=d) * 1,
    "full of integers": lambda d: torch.full((2,), float(BIG), dtype=torch.int64, device=d) * 1,
    "full of complex numbers": lambda d: (
        torch.full((2,), 0.1, dtype=torch.complex128, device=d) * 1
    ),
    "fill_": lambda d: torch.ones(2, dtype=WIDE, device=d).fill_(0.1),
    "fill_ of integers": lambda d: torch.ones(2, dtype=torch.int64, device=d).fill_(float(BIG)),
    "masked_fill": lambda d: _integers(d).masked_fill(_integers(d) < 9, 2.0),
    "masked_fill of a fraction": lambda d: _integers(d).masked_fill(_integers(d) < 9, 2.5),
    "sum": lambda d: _integers(d) + 0.1,
    "comparison": lambda d: _integers(d) > BIG - 0.5,
    "quotient": lambda d: _integers(d) / 3,
    "a function of integers": lambda d: _integers(d).sqrt(),
    "of bools": lambda d: (_integers(d) > 9) * 0.1,
}


def _integers(device: str) -> Tensor:
    return torch.tensor([BIG, 5], device=device)


@pytest.fixture
def wide_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def _check(name: str) -> None:
    expected = CASES[name]("cpu")
    torch.testing.assert_close(CASES[name]("xla").cpu(), expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_eager(name: str) -> None:
    _check(name)


@pytest.mark.usefixtures("wide_default")
@pytest.mark.parametrize("name", CASES)
def test_another_default_dtype(name: str) -> None:
    torch.set_default_dtype(torch.float32)
    _check(name)
    torch.set_default_dtype(torch.float64)
    expected = CASES[name]("cpu")
    torch.testing.assert_close(CASES[name]("xla").cpu(), expected, rtol=1e-15, atol=0)


HALVES: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x + 0.1,
    "sum of an integer": lambda x: x + 257,
    "difference": lambda x: x - 0.3,
    "reversed difference": lambda x: 0.1 - x,
    "product": lambda x: x * 1e-5,
    "large product": lambda x: x * 1e5,
    "truncated quotient": lambda x: torch.div(x, 0.1, rounding_mode="trunc"),
    "floored quotient": lambda x: x // 0.1,
    "remainder": lambda x: x % 0.1,
    "remainder of C": lambda x: torch.fmod(x, 0.7),
    "remainder of a number": lambda x: 3.3 % x,
    "quotient of a number": lambda x: 0.3 // x,
    "power": lambda x: x**-0.7,
    "power of a number": lambda x: 3.3**x,
    "xlogy": lambda x: torch.xlogy(0.3, x.abs()),
    "equality": lambda x: x == 0.1,
    "order": lambda x: (x <= 0.3) * 2 + (x < 0.1),
    "filled": lambda x: torch.where(x > 0, x, 0.1).masked_fill(x > 1, 0.3),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", HALVES)
def test_numbers_beside_16_bits_are_rounded_where_eager_rounds_them(
    name: str, dtype: torch.dtype
) -> None:
    """0.1 is another number in 16 bits; most kernels of eager take that one, some 0.1."""
    x = torch.cat([torch.arange(-12, 13) / 2, torch.tensor([0.1, 0.2, 0.3, -0.1, 0.75])]).to(dtype)
    expected = HALVES[name](x)
    bounds = {"rtol": 1.01 * torch.finfo(dtype).eps, "atol": 0, "equal_nan": True}
    compiled = torch.compile(HALVES[name], backend="xla", fullgraph=True)(x)
    torch.testing.assert_close(compiled, expected, **bounds)
    torch.testing.assert_close(HALVES[name](x.to("xla")).cpu(), expected, **bounds)
