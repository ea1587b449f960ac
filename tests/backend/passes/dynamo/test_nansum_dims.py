"""nansum over an empty list of dimensions, given in each of the ways that there are."""

from __future__ import annotations

from collections.abc import Callable
from math import nan

import pytest
import torch
from torch import Tensor

import xla_dynamo.compat  # noqa: F401  (the xla device)
from tests.like_eager.compiled import assert_like_eager

NONE: dict[str, Callable[[Tensor], Tensor]] = {
    "function": lambda x: torch.nansum(x, []),
    "method": lambda x: x.nansum([], True),
    "by name": lambda x: torch.nansum(x, dim=(), keepdim=True, dtype=torch.float64),
}
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "some": lambda x: torch.nansum(x, [0]),
    "all": lambda x: x.nansum(),
}


def _rows() -> Tensor:
    return torch.tensor([[nan, 2.0], [1.0, 3.0], [nan, nan]], requires_grad=True)


@pytest.mark.parametrize("name", OTHERS)
def test_dimensions(name: str) -> None:
    assert_like_eager(lambda x: OTHERS[name](x) * torch.arange(1.0, 3.0), _rows())


@pytest.mark.parametrize("name", NONE)
def test_no_dimensions_of_a_scalar(name: str) -> None:
    x = torch.tensor(3.0, requires_grad=True)
    assert_like_eager(lambda x: NONE[name](x) * torch.arange(1.0, 3.0), x)


@pytest.mark.parametrize("name", NONE)
def test_no_dimensions_where_there_are_some_are_refused(name: str) -> None:
    with pytest.raises(Exception, match=r"test_nansum_dims.py.*Leave the dimensions out"):
        torch.compile(NONE[name], backend="xla")(_rows())


@pytest.mark.parametrize("name", NONE)
def test_no_dimensions_lazily(name: str) -> None:
    x = _rows().detach()
    torch.testing.assert_close(NONE[name](x.to("xla")).cpu(), NONE[name](x))
