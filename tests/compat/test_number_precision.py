"""Python numbers of a window enter ops in the precision of eager's."""

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
