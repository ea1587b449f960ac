"""`1 - x` of a script for torch_xla is one op, with eager's numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import xla_dynamo
import xla_dynamo.compat

SPECIAL = torch.tensor([0.0, -0.0, 1.0, torch.inf, -torch.inf, torch.nan, 1e-40, 3e38])


def _gradient(x: Tensor) -> Tensor:
    x.requires_grad_()
    F.silu(x).sum().backward()
    assert x.grad is not None
    return x.grad.cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_silu(dtype: torch.dtype) -> None:
    xla_dynamo.compat.install()
    x = torch.cat([torch.randn(2, 4, 8, 8).flatten(), SPECIAL]).to(dtype)
    with xla_dynamo.capture() as stages:
        got = _gradient(x.to("xla"))
    torch.testing.assert_close(got, _gradient(x.clone()), equal_nan=True)
    assert xla_dynamo.passes()["subtract_from_numbers"].changed == 1
    assert "rsub" in stages[0].fx
    assert "fill" not in stages[0].fx


def _of_another_size(x: Tensor) -> Tensor:
    return torch.zeros(3, 4, device=x.device).fill_(2) - x


def _of_another_dtype(x: Tensor) -> Tensor:
    return torch.zeros(4, device=x.device, dtype=torch.float64).fill_(0.1) - x


def _of_no_number(x: Tensor) -> Tensor:
    return torch.zeros(4, device=x.device).fill_(0.1) - x


def _of_16_bits(x: Tensor) -> Tensor:
    return torch.zeros(4, device=x.device, dtype=torch.bfloat16).fill_(1) - x.bfloat16()


def _of_a_bool(x: Tensor) -> Tensor:
    return torch.zeros(4, device=x.device).fill_(True) - x


def _scaled(x: Tensor) -> Tensor:
    return torch.sub(torch.zeros(4, device=x.device).fill_(2), x, alpha=3)


@pytest.mark.parametrize(
    "function",
    [_of_another_size, _of_another_dtype, _of_no_number, _of_16_bits, _of_a_bool, _scaled],
)
def test_what_another_difference_would_change(function: Callable[[Tensor], Tensor]) -> None:
    xla_dynamo.compat.install()
    x = torch.randn(4)
    torch.testing.assert_close(function(x.to("xla")).cpu(), function(x), rtol=0, atol=0)
    assert xla_dynamo.passes()["subtract_from_numbers"].changed == 0


def test_sizes_that_are_symbols_stay_apart() -> None:
    compiled = torch.compile(lambda x, y: torch.fill(x, 2.0) - y, backend="xla", dynamic=True)
    for size in (3, 4):
        x, y = torch.randn(size), torch.randn(size)
        torch.testing.assert_close(compiled(x, y), 2 - y)
    assert len(xla_dynamo.compiles()) == 2
