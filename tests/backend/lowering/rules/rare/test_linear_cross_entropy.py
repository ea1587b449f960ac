"""The chunked linear_cross_entropy, against eager."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check, check_samples
from xla_dynamo.backend.lowering.rules.rare import linear_cross_entropy  # noqa: F401  (has the ops)

torch_nn = torch.ops.torch_nn


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("variant", ["chunked", "chunked_none"])
def test_samples(variant: str, dtype: torch.dtype) -> None:
    name = "nn.functional.linear_cross_entropy"
    ops = (
        torch_nn._linear_cross_entropy_batch_chunked.default,
        torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default,
    )
    assert check_samples(name, dtype, variant=variant, only=ops, limit=20)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("rows", [0, 5, 8])
@pytest.mark.parametrize("gradients", [(True, True, True), (False, True, False), (False,) * 3])
def test_gradients(reduction: str, rows: int, gradients: tuple[bool, bool, bool]) -> None:
    x, table, bias, weight = (torch.randn(s).double() for s in ((rows, 3), (7, 3), 7, 7))
    target = torch.tensor([0, 6, -100, 3, 3, 1, 2, -100])[:rows]
    op = torch_nn._linear_cross_entropy_batch_chunked.default
    chunked = (4, "balanced", torch.float64, True)
    check(op, x, table, target, bias, weight, reduction, -100, 0.0, *chunked, *gradients)
    inside = target.clamp_min(0)
    check(op, x, table, inside, None, None, reduction, 3, 0.0, *chunked, *gradients[:2], False)


def test_all_rows_ignored() -> None:
    x, table, target = torch.randn(4, 3), torch.randn(5, 3), torch.full((4,), -100)
    op = torch_nn._linear_cross_entropy_batch_chunked.default
    options = (-100, 0.0, 2, "balanced", torch.float32, True, True, True, False)
    check(op, x, table, target, None, None, "mean", *options)
    check(op, x, table, target, None, None, "sum", *options)
