"""Ops whose shape depends on data: both doors compute them, and give what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import xla_dynamo.compat
from tests.like_eager.compiled import fallbacks

INF, NAN = float("inf"), float("nan")
FLOATS = torch.tensor([[1.5, 0.0, -2.0, 0.0], [0.0, 3.0, 1.5, -0.0], [7.0, 0.0, 0.0, -1.0]])
INTEGERS = torch.tensor([[1, 0, 4, 1], [0, 0, 1, 2], [4, 1, 1, 0]])
ROWS, COLUMNS = torch.tensor([True, False, True]), torch.tensor([True, False, True, True])

CASES: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "nonzero": (lambda x: x.nonzero(), [FLOATS]),
    "nonzero, used": (lambda x: (x > 0).nonzero() * 2, [FLOATS]),
    "nonzero as a tuple": (lambda x: x.nonzero(as_tuple=True), [FLOATS]),
    "nonzero of a number": (lambda x: x.nonzero(), [torch.tensor(3.0)]),
    "nonzero of complex": (lambda x: x.nonzero(), [torch.tensor([0j, 1j, 1 + 0j])]),
    "nonzero of nothing": (lambda x: x.nonzero(), [torch.zeros(0, 3)]),
    "nonzero of zeros": (lambda x: x.nonzero(), [torch.zeros(2, 3)]),
    "argwhere": (torch.argwhere, [FLOATS]),
    "masked_select": (torch.masked_select, [FLOATS, COLUMNS]),
    "masked_select, both broadcast": (torch.masked_select, [FLOATS[:, :1], COLUMNS]),
    "mask": (lambda x: x[x > 0], [FLOATS]),
    "mask, used": (lambda x: x[x > 0].cumsum(0), [FLOATS]),
    "mask of rows": (lambda x, m: x[m], [FLOATS, ROWS]),
    "mask of columns": (lambda x, m: x[:, m], [FLOATS, COLUMNS]),
    "mask in the middle": (lambda x, m: x.expand(2, 3, 4)[:, m], [FLOATS, ROWS]),
    "mask of two dimensions": (lambda x: x[..., None].expand(3, 4, 2)[x > 0], [FLOATS]),
    "mask of what a mask picked": (lambda x, m, n: x[m][:, n], [FLOATS, ROWS, COLUMNS]),
    "unique rows of what a mask picked": (
        lambda x, m: torch.unique(x[:, m], dim=0, return_counts=True),
        [INTEGERS % 2, COLUMNS],
    ),
    "unique": (torch.unique, [INTEGERS]),
    "unique, all": (lambda x: torch.unique(x, True, True, True), [INTEGERS]),
    "unique floats": (
        lambda x: torch.unique(x, return_counts=True),
        [torch.tensor([INF, 1.0, NAN, -0.0, 1.0, NAN, 0.0, -INF])],
    ),
    "unique bools": (lambda x: torch.unique(x, return_inverse=True), [COLUMNS]),
    "unique of nothing": (lambda x: torch.unique(x, True, True, True), [torch.zeros(0)]),
    "unique rows": (lambda x: torch.unique(x, True, True, True, 0), [INTEGERS[:, :2] > 0]),
    "unique columns": (lambda x: torch.unique(x, True, True, True, 1), [INTEGERS % 2]),
    "consecutive": (lambda x: torch.unique_consecutive(x, True, True), [INTEGERS]),
    "consecutive columns": (
        lambda x: torch.unique_consecutive(x, True, True, 1),
        [INTEGERS[:, [0, 0, 1, 2, 2, 2]]],
    ),
    "repeats": (torch.repeat_interleave, [INTEGERS[0]]),
    "repeated columns": (lambda x, n: x.repeat_interleave(n, 1), [FLOATS, INTEGERS[0]]),
    "bincount": (torch.bincount, [INTEGERS[0]]),
    "bincount of bytes": (lambda x: torch.bincount(x, minlength=9), [INTEGERS[0].byte()]),
    "weights": (torch.bincount, [INTEGERS[0], FLOATS[0]]),
    "integer weights": (torch.bincount, [INTEGERS[0], INTEGERS[1]]),
    "bincount of nothing": (lambda x: torch.bincount(x, minlength=3), [INTEGERS[0, :0]]),
    "item": (lambda x: x + x.sum().item(), [FLOATS]),
    "a size": (lambda x: torch.ones(int(x.sum()) + 1, device=x.device), [INTEGERS]),
    "narrow": (lambda x, start: x.narrow(0, start, 2), [FLOATS, torch.tensor(1)]),
    "tensor_split": (lambda x, at: x.tensor_split(at.cpu()), [FLOATS, torch.tensor([1, 2])]),
}


def _assert_same(actual: Any, expected: Any) -> None:
    ours, theirs = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    for x, y in zip(ours, theirs, strict=True):
        torch.testing.assert_close(x.cpu(), y, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_as_eager_through_both_doors(name: str) -> None:
    function, given = CASES[name]
    expected = function(*given)
    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="xla", fullgraph=True, dynamic=dynamic)
        _assert_same(compiled(*given), expected)
    assert fallbacks() == {}
    _assert_same(function(*[x.to("xla:0") for x in given]), expected)  # no FallbackWarning


def test_lazily_a_mask_among_indices() -> None:
    """Dynamo has no words for these."""
    rows = torch.tensor([2, 0])
    for index in (
        (ROWS, rows),
        (ROWS, COLUMNS.roll(2) & COLUMNS),
        (None, ROWS),
        (ROWS.byte(),),
        (ROWS[0],),
    ):
        lazy = tuple(x if x is None else x.to("xla:0") for x in index)
        _assert_same(FLOATS.to("xla:0")[lazy], FLOATS[index])


REFUSED: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
    "another shape": (torch.masked_select, [FLOATS, ROWS]),
    "no mask": (torch.masked_select, [FLOATS, FLOATS]),
    "bincount of floats": (torch.bincount, [FLOATS[0]]),
    "bincount of a matrix": (torch.bincount, [INTEGERS]),
    "bincount of negatives": (torch.bincount, [-INTEGERS[0]]),
    "other weights": (torch.bincount, [INTEGERS[0], FLOATS[0, :2]]),
    "negative length": (lambda x: torch.bincount(x, minlength=-1), [INTEGERS[0]]),
    "repeats that are floats": (torch.repeat_interleave, [FLOATS[0]]),
    "negative repeats": (torch.repeat_interleave, [-INTEGERS[0]]),
    "complex numbers": (torch.unique, [FLOATS.to(torch.complex64)]),
}


@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_eager(name: str) -> None:
    function, given = REFUSED[name]
    with pytest.raises(RuntimeError) as eager:
        function(*given)
    expected = str(eager.value).splitlines()[0]
    with pytest.raises(RuntimeError) as lazy:
        function(*[x.to("xla:0") for x in given])
    assert expected in str(lazy.value)
    with pytest.raises(RuntimeError) as compiled:
        torch.compile(function, backend="xla", fullgraph=True)(*given)
    assert expected in str(compiled.value)


def test_a_mask_of_another_shape() -> None:
    with pytest.raises(IndexError, match=r"mask \[3\] at index 0 does not match"):
        FLOATS.t().to("xla:0")[ROWS.to("xla:0")]
    with pytest.raises(IndexError, match=r"mask \[3\] at index 1 does not match"):
        FLOATS.to("xla:0")[INTEGERS[0].to("xla:0") % 2, ROWS.to("xla:0")]


def test_gradients() -> None:
    def gradient(x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        kept = x[x > 0] * torch.masked_select(x, x > 0)
        (given,) = torch.autograd.grad(kept.square().sum(), x)
        return given

    _assert_same(gradient(FLOATS.to("xla:0")), gradient(FLOATS))
    compiled = torch.compile(lambda x: x[x > 0] ** 2, backend="xla", fullgraph=True)
    x = FLOATS.clone().requires_grad_()
    (ours,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(ours, 2 * FLOATS.clamp(min=0))
    assert fallbacks() == {}


def test_one_program_whatever_the_number() -> None:
    compiled = torch.compile(lambda x: x[x > 0], backend="xla", fullgraph=True)
    for limit in (0.0, 1.5, 9.0):
        x = FLOATS - limit
        _assert_same(compiled(x), x[x > 0])
    assert len(xla_dynamo.compiles()) == 1
