"""Products of 64-bit integers in their form for TPUs, computed on the CPU, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.like_eager.rules import check
from xla_dynamo.backend.lowering.registry import Target, lowering_for

aten = torch.ops.aten


def _large(*shape: int) -> Tensor:
    """Sums of their products wrap around."""
    return torch.randint(-(2**40), 2**40, shape)


CALLS: dict[str, tuple[Any, ...]] = {
    "mm": (aten.mm.default, _large(3, 4), _large(4, 5)),
    "mv": (aten.mv.default, _large(3, 4), _large(4)),
    "dot": (aten.dot.default, _large(4), _large(4)),
    "bmm": (aten.bmm.default, _large(2, 3, 4), _large(2, 4, 5)),
    "matmul": (aten.matmul.default, _large(2, 1, 3, 4), _large(6, 4, 5)),
    "addmm": (aten.addmm.default, _large(5), _large(3, 4), _large(4, 5)),
    "baddbmm": (aten.baddbmm.default, _large(2, 3, 5), _large(2, 3, 4), _large(2, 4, 5)),
    "addbmm": (aten.addbmm.default, _large(3, 5), _large(2, 3, 4), _large(2, 4, 5)),
    "linear": (aten.linear.default, _large(2, 3, 4), _large(5, 4)),
}


@pytest.mark.parametrize("name", CALLS)
def test_integers_of_64_bits(name: str) -> None:
    with lowering_for(Target("tpu")):
        check(*CALLS[name])


def test_other_dtypes_have_the_plain_form() -> None:
    with lowering_for(Target("tpu")):
        check(aten.mm.default, torch.randn(3, 4), torch.randn(4, 5))
        check(
            aten.addmm.default, torch.ones(5).int(), torch.ones(3, 4).int(), torch.ones(4, 5).int()
        )
