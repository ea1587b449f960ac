"""Zeros by any name."""

from __future__ import annotations

import pytest
import torch

import xla_dynamo
from tests.like_eager.rules import run

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_zeros_without_memory_are_zeros(dtype: torch.dtype) -> None:
    got = run(aten._efficientzerotensor.default, [2, 3], dtype=dtype)
    torch.testing.assert_close(got, torch.zeros(2, 3, dtype=dtype))


def test_the_gradient_of_a_sign_stays_in_the_graph() -> None:
    x = torch.randn(3, requires_grad=True)
    torch.compile(torch.sgn, backend="xla", fullgraph=True)(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.zeros(3))
    assert xla_dynamo.counters() == {}
