"""Gradients that go to the elements which equal a result: backward looks for those of forward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import xla_dynamo

X = torch.randn(64, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

RESULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "amax": lambda x: x.amax(1),
    "amax of a view": lambda x: x.view(-1, 4).amax(1),
    "amax of a transpose": lambda x: x.mT.amax(1),
    "amin": lambda x: x.amin(1),
    "infinite norm": lambda x: torch.linalg.vector_norm(x, torch.inf, 1),
    "medians": lambda x: torch.stack([row.median() for row in x[:8]]),
    "maxima": lambda x: torch.stack([row.max() for row in x[:8]]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_they_are_found_again_in_backward(name: str) -> None:
    """Backward would compute x again in another program, and not to the last digit the same."""

    def function(x: Tensor) -> Tensor:
        return RESULTS[name](F.mse_loss(x, F.gelu(x), reduction="none"))

    def gradient(of: Callable[[Tensor], Tensor]) -> Tensor:
        x = X.clone().requires_grad_()
        return torch.autograd.grad(of(x).sum(), x)[0]

    compiled = torch.compile(function, backend="xla", fullgraph=True, dynamic=False)
    torch.testing.assert_close(gradient(compiled), gradient(function))


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x,
    "view": lambda x: x.view(-1, 4),
    "transpose": lambda x: x.mT,
}


@pytest.mark.parametrize("name", VIEWS)
def test_forward_compares(name: str) -> None:
    """Also where what is compared is a view, which backward makes again of what is saved."""

    def function(x: Tensor) -> Tensor:
        return VIEWS[name]((x * 3.1).sin()).amax(1).sum()

    torch.compile(function, backend="xla")(torch.randn(6, 8, requires_grad=True)).backward()
    assert [shape for shape in xla_dynamo.compiles()[-1].shapes if shape.startswith("bool")]
