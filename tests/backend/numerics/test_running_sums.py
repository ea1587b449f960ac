"""Running sums of equal constants: XLA would make multiples of them, or end the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import xla_dynamo.compat  # noqa: F401
from tests.like_eager.compiled import assert_same

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "of one true": lambda x: torch.ones(1, dtype=torch.bool, device=x.device).expand(4).cumsum(0),
    "of one number": lambda x: torch.tensor([2], device=x.device).expand(4).cumsum(0),
    "of bytes": lambda x: torch.full((4,), 300, device=x.device).to(torch.uint8).cumsum(0),
    "of what was rounded": lambda x: x.new_full((4,), 2.7).bfloat16().float().cumsum(0),
    "of what was truncated": lambda x: x.new_full((2, 4), 2.7).int().float().cumsum(1),
    "of zeros": lambda x: torch.zeros(4, device=x.device).cumsum(0),
    "masked_scatter": lambda x: x.masked_scatter(
        torch.ones(1, dtype=torch.bool, device=x.device), x.flip(0) * 2
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_running_sums_of_constants(name: str) -> None:
    def program(x: Tensor) -> Tensor:
        return PROGRAMS[name](x) + x

    x = torch.arange(4.0)
    assert_same(torch.compile(program, backend="xla", fullgraph=True)(x), program(x))
    assert_same(program(x.to("xla:0")).cpu(), program(x))


ONE_SUMMAND: dict[str, Callable[[Tensor], Tensor]] = {
    "cumsum": lambda x: x.cumsum(0),
    "cumsum from the end": lambda x: x.flip(0).cumsum(0).flip(0),
    "cumulative_trapezoid": lambda x: torch.cumulative_trapezoid(x.expand(2), dim=0),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "mean": lambda x: x.mean(0),
    "nansum": lambda x: x.nansum(0, keepdim=True),
    "sum": lambda x: x.sum(),
    "sum over some dims": lambda x: x.reshape(1, 1).sum(0),
}


@pytest.mark.parametrize("name", ONE_SUMMAND)
def test_one_summand(name: str) -> None:
    """Eager adds it to 0, which makes -0.0 positive; XLA hands it on."""
    for dtype in (torch.float64, torch.bfloat16):
        x = torch.tensor([-0.0], dtype=dtype)
        expected = ONE_SUMMAND[name](x).signbit()
        compiled = torch.compile(ONE_SUMMAND[name], backend="xla")
        assert torch.equal(compiled(x).signbit(), expected)
        assert torch.equal(ONE_SUMMAND[name](x.to("xla:0")).signbit().cpu(), expected)
