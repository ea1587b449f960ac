"""Gradients that pick by data but have static shapes run in one executable, without the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import xla_dynamo

MASK = torch.tensor([True, False, True, True, False])
GRID = torch.tensor([[True, False], [False, True], [True, True], [False] * 2, [True, False]])
REPEATED = torch.tensor([0, 3, 0])


def _gradients(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[torch.Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    out = function(*leaves)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(out.dtype)
    return [out, *torch.autograd.grad(out, leaves, cotangent)]


def _check(function: Callable[..., torch.Tensor], *inputs: torch.Tensor, **options: Any) -> None:
    compiled = torch.compile(function, backend="xla", fullgraph=True, **options)
    got, want = _gradients(compiled, *inputs), _gradients(function, *inputs)
    torch.testing.assert_close(got, want)
    assert xla_dynamo.counters() == {}  # no fallback


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_value_that_fills_gets_each_index_once(dim: int, dynamic: bool) -> None:
    x, value = torch.randn(5, 4), torch.randn(())
    _check(lambda x, v: x.index_fill(dim, REPEATED, v), x, value, dynamic=dynamic)


def test_a_number_that_is_filled_has_one_index() -> None:
    index = torch.tensor([0])
    _check(lambda x, v: x.index_fill(0, index, v), torch.randn(()), torch.randn(()))


@pytest.mark.parametrize(
    ("indices", "values"),
    [
        ((MASK,), ()),
        ((MASK,), (2,)),
        ((MASK,), (3, 2)),
        ((MASK,), (1, 2)),
        ((GRID,), ()),
        ((GRID,), (5,)),
        ((slice(None), GRID[0]), (5, 1)),
    ],
)
@pytest.mark.parametrize("accumulate", [False, True])
def test_what_a_mask_puts_gets_the_gradient_there(
    indices: tuple[Any, ...], values: tuple[int, ...], accumulate: bool
) -> None:
    where = [None if isinstance(index, slice) else index for index in indices]

    def put(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.index_put(x, where, v, accumulate)

    _check(put, torch.randn(5, 2), torch.randn(values))


def test_what_is_not_picked_does_not_count() -> None:
    x = torch.tensor([1.0, float("nan"), 2.0, 3.0, float("inf")])
    compiled = torch.compile(lambda x: x[MASK].sum(), backend="xla", fullgraph=True)
    torch.testing.assert_close(compiled(x), torch.tensor(6.0))
    assert xla_dynamo.counters() == {}


def test_a_selection_whose_length_matters_is_cut_to_it() -> None:
    x = torch.randn(5)
    got = torch.compile(lambda x: x[MASK].mean(), backend="xla", fullgraph=True)(x)
    torch.testing.assert_close(got, x[MASK].mean())
    assert xla_dynamo.counters() == {}
