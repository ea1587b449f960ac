"""topk by kernel, by passes and by sorting: the elements of eager, each taken once."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import run

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64, torch.uint8]


def rows(dtype: torch.dtype) -> torch.Tensor:
    """Ties; nothing but the least there is; every special number there is, beside others."""
    ties = torch.arange(40) % 7
    if not dtype.is_floating_point:
        bounds = torch.iinfo(dtype)
        numbers = [bounds.min, bounds.max, 0, 1, bounds.max - 1, bounds.min + 1, bounds.min]
        special = [numbers[i % 7] for i in range(40)]
        return torch.stack(
            [t.to(dtype) for t in (ties, torch.full((40,), bounds.min))]
            + [torch.tensor(special, dtype=dtype)]
        )
    nan, inf = float("nan"), float("inf")
    special = torch.tensor([nan, inf, -0.0, 0.0, -inf, -nan, torch.finfo(dtype).max, -1.0] * 5)
    assert special[5].signbit()
    return torch.stack([ties, torch.full((40,), -inf), special]).to(dtype)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 7, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_element_is_taken_once(dtype: torch.dtype, k: int, largest: bool) -> None:
    x = rows(dtype)
    expected = torch.topk(x, k, -1, largest).values
    values, positions = run(aten.topk.default, x, k, -1, largest)
    torch.testing.assert_close(values, expected, equal_nan=True)
    torch.testing.assert_close(x.gather(1, positions.long()), expected, equal_nan=True)
    assert all(len(set(row.tolist())) == k for row in positions)
