"""Python numbers, which are inputs of a trace, in ops on integers: eager wraps and rounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.like_eager.lazy import assert_lockstep

OPS: dict[str, Callable[[Tensor], object]] = {
    "floor division": lambda x: x // -2,
    "division to zero": lambda x: torch.div(x, -2, rounding_mode="trunc"),
    "true division": lambda x: torch.div(x, -2, rounding_mode=None),
    "remainder": lambda x: x % -7,
    "fmod": lambda x: torch.fmod(x, -2),
    "comparisons": lambda x: (x > -2, x <= -2, x == 254, x != -2),
    "arithmetic": lambda x: (x + 300, x - 300, 5 - x, x * -2, x / -2),
    "fractions": lambda x: (x + 2.5, x // 2.5, x > 2.5),
    "a scale": lambda x: (torch.add(x, x, alpha=-3), torch.sub(x, x, alpha=3)),
    "a fraction as scale of a product": lambda x: torch.addcmul(x, x, x, value=2.5),
}


@pytest.mark.parametrize("shape", [(), (3,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_numbers_with_integers(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.tensor([3, 120, 7], dtype=dtype)
    assert_lockstep(OPS[name], x if shape else x[0])


def test_a_scale_of_bools_is_a_bool() -> None:
    x = torch.tensor([True, False, True])
    for alpha in (-1, 0, 2):
        assert_lockstep(lambda x, alpha=alpha: torch.add(x, x, alpha=alpha), x)


@pytest.mark.parametrize("alpha", [0, -0.0, 2, -1.5])
def test_a_scale_decides_signs_of_zeros(alpha: float) -> None:
    def signs(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        results = (
            torch.add(x, y, alpha=alpha),
            torch.sub(x, y, alpha=alpha),
            torch.rsub(x, y, alpha=alpha),
        )
        return (*results, *map(torch.signbit, results))

    x = torch.tensor([-0.0, 0.0, -0.0, 0.0, 3.0])
    assert_lockstep(signs, x, torch.tensor([-0.0, 0.0, 2.0, -5.0, 1.5]))
