"""The hash of a tensor's bits, against eager."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check, check_samples

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
def test_hash_tensor(dtype: torch.dtype) -> None:
    assert check_samples("hash_tensor", dtype, limit=10_000)


def test_hash_of_special_values() -> None:
    x = torch.tensor([[float("nan"), -0.0, float("inf")], [1e-30, -1.5, 3.0]])
    check(aten.hash_tensor.default, x, [1], keepdim=True)
    check(aten.hash_tensor.default, x)
    check(aten.hash_tensor.default, torch.tensor(-3, dtype=torch.int8), [0], keepdim=True)
    check(aten.hash_tensor.default, torch.zeros(0, 2), [1])
