"""narrow at a start that is a tensor: one program, unless its result is a view that is returned."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import xla_dynamo
from tests.like_eager.compiled import assert_like_eager

STARTS = [0, 2, 3, -5, -3]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_one_program_for_every_start(start: int, dtype: torch.dtype) -> None:
    x, y = torch.randn(6, 5, requires_grad=True), torch.randn(4, 3)
    at = torch.tensor(start % 6, dtype=dtype)
    assert_like_eager(lambda x, y, at: y @ x.narrow(0, at, 3).sin(), x, y, at)


@pytest.mark.parametrize("start", [1, -4])
@pytest.mark.parametrize("dim", [1, -1])
def test_two_slices_and_their_gradients(start: int, dim: int) -> None:
    def step(x: Tensor, at: Tensor) -> Tensor:
        return x.narrow(dim, at, 2) * torch.narrow(x, dim, at, 2).exp()

    assert_like_eager(step, torch.randn(3, 7, requires_grad=True), torch.tensor(start))


def test_the_start_compiles_nothing() -> None:
    compiled = torch.compile(lambda x, at: x.narrow(0, at, 2) + 1, backend="xla", fullgraph=True)
    x = torch.arange(6.0)
    for start in (0, 3, 4):
        assert compiled(x, torch.tensor(start)).tolist() == [start + 1, start + 2]
    assert len(xla_dynamo.compiles()) == 1


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.complex64, torch.bfloat16])
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.arange(7).to(dtype)
    assert_like_eager(lambda x, at: x.narrow(0, at, 3).clone(), x, torch.tensor(2))


def test_batches_that_change() -> None:
    def step(x: Tensor, at: Tensor) -> Tensor:
        return x.narrow(1, at, 3).sin()

    compiled = torch.compile(step, backend="xla", dynamic=True, fullgraph=True)
    for batch in (2, 5):
        x, at = torch.randn(batch, 8, requires_grad=True), torch.tensor(batch)
        got, want = compiled(x, at), step(x, at)
        torch.testing.assert_close(got, want)
        gradients = [torch.autograd.grad(r.sum(), x)[0] for r in (got, want)]
        torch.testing.assert_close(*gradients)


def test_a_view_that_is_returned_is_one() -> None:
    x, at = torch.arange(6.0), torch.tensor(2)
    compiled = torch.compile(lambda x, at: x.narrow(0, at, 3), backend="xla", fullgraph=True)
    part = compiled(x, at)
    assert part.tolist() == [2, 3, 4]
    part += 10
    assert x.tolist() == [0, 1, 12, 13, 14, 5]
