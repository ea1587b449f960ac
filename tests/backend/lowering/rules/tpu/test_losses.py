"""Losses in their form for TPUs, computed on the CPU, have the numbers of the plain form."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check, run
from xla_dynamo.backend.lowering.registry import Target, lowering_for

of_parts = torch.ops.xla_dynamo.nll_loss_of_parts.default


@pytest.mark.parametrize("reduction", range(3))
@pytest.mark.parametrize("shape", [(6, 5), (5,), (2, 5, 3, 4)])
def test_losses(shape: tuple[int, ...], reduction: int) -> None:
    x, axis = torch.randn(shape), min(len(shape) - 1, 1)
    target = torch.randint(5, (*shape[:1], *shape[2:]) if axis else ())
    target.view(-1)[1:2] = -100
    totals = torch.randn([1 if i == axis else size for i, size in enumerate(shape)])
    for weight in (None, torch.rand(5)):
        args = (x, totals, target, weight, reduction, -100)
        plain = run(of_parts, *args)
        with lowering_for(Target("tpu")):
            check(of_parts, *args)
            assert all(map(torch.equal, run(of_parts, *args), plain))


def test_what_is_not_chosen_does_not_count() -> None:
    x = torch.tensor([[float("inf"), 2.0, float("nan")]])
    with lowering_for(Target("tpu")):
        loss, _ = run(of_parts, x, torch.zeros(1, 1), torch.tensor([1]), None, 1, -100)
    assert loss == -2
