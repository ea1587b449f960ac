"""Gradients that go to the elements which equal a result: backward looks for those of forward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

X = torch.randn(64, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

RESULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "amax": lambda x: x.amax(1),
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
