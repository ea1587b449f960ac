"""nansum over an empty list of dimensions, given in each of the ways that there are."""

from __future__ import annotations

from collections.abc import Callable
from math import nan

import pytest
import torch
from eager import assert_like_eager
from torch import Tensor

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "function": lambda x: torch.nansum(x, []),
    "method": lambda x: x.nansum([], True),
    "by name": lambda x: torch.nansum(x, dim=(), keepdim=True, dtype=torch.float64),
    "some": lambda x: torch.nansum(x, [0]),
    "all": lambda x: x.nansum(),
}


@pytest.mark.parametrize("name", CALLS)
def test_nansum(name: str) -> None:
    x = torch.tensor([[nan, 2.0], [1.0, 3.0], [nan, nan]], requires_grad=True)
    assert_like_eager(lambda x: CALLS[name](x) * torch.arange(1.0, 3.0), x)
