"""Integers that only select: one program for all of them, and eager's values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor

import xla_dynamo
from tests.compat.loops import counting
from xla_dynamo.compat.recording import pending
from xla_dynamo.compat.values import selected
from xla_dynamo.compat.values.op_table import op_of
from xla_dynamo.compat.values.trie import INT
from xla_dynamo.compat.values.values import meta

CPU, XLA = torch.device("cpu"), torch.device("xla:0")
aten = torch.ops.aten


def alike(steps: Callable[[torch.device], list[Any]], programs: int) -> None:
    """The loop gives the CPU's values on the device, and compiles at most so many programs."""
    expected = steps(CPU)
    with counting() as counts:
        actual = steps(XLA)
    torch.testing.assert_close(actual, expected)
    assert counts.compiles <= programs, [r.reason for r in xla_dynamo.compiles()[-9:]]


def test_a_sampler():
    """Two indices a step, a cache that is written to, position ids: 20 steps, two programs."""

    def steps(device: torch.device) -> list[Tensor]:
        sigmas, x = torch.linspace(1, 0, 22).to(device), torch.arange(12.0).view(3, 4).to(device)
        cache, found = torch.zeros(2, 22, 4).to(device), []
        for i in range(20):
            x = x + x.cos() * (sigmas[i + 1] - sigmas[i])
            cache[:, i] = x[i % 3]
            ids = torch.arange(i, i + 3, device=device)
            seen = cache[:, i : i + 2] + x.roll(i, 1)[:2, None]
            cache[i % 2].add_(1)
            xm.mark_step()
            found += [x.cpu(), seen.cpu(), ids.cpu(), cache.to("cpu", copy=True)]
        return found

    alike(steps, 2)


def test_another_first_step():
    """What the first step leaves out is found to change two steps later."""

    def steps(device: torch.device) -> list[Tensor]:
        x, found = torch.arange(30.0).view(10, 3).to(device), []
        for i in range(10):
            y = x[i] * 2
            if i > 0:
                y = y + x[i - 1].exp()
            xm.mark_step()
            found.append(y.cpu())
        return found

    alike(steps, 3)


def test_gradients_of_slices_and_writes():
    def steps(device: torch.device) -> list[Any]:
        weight = torch.linspace(-1, 1, 48).view(8, 6).to(device).requires_grad_()
        found = []
        for i in range(5):
            y = weight * 2
            taken = [y[i], y[:, -i - 1], y[i : i + 3 : 2], y.narrow(1, i % 3, 2)]
            y[:, i] = weight[:, (i + 1) % 5] * 3
            y[i : i + 2].mul_(weight[i])
            written = torch.slice_scatter(y, weight[:2], 0, i, i + 2)
            written = torch.select_scatter(written, weight[0], 0, i - 7)
            written = torch.slice_scatter(written, weight[:2], 0, i, i + 4, 2)
            rolled = torch.roll(y, (i, -i), (0, 1))[0] * torch.roll(y, i).view(-1)[:6]
            parts = [t.sin().sum() for t in (*taken, y, written.exp(), rolled)]
            loss = torch.stack(parts).sum()
            loss.backward()
            xm.mark_step()
            assert weight.grad is not None
            found.append((loss.detach().cpu(), y.detach().cpu(), weight.grad.cpu()))
            weight.grad = None
        return found

    alike(steps, 2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16])
def test_views_that_are_kept_and_written_later(dtype):
    def steps(device: torch.device) -> list[Tensor]:
        x, views, found = torch.zeros(4, 5).to(device, dtype), [], []
        for i in range(4):
            views.append(x[i, i : i + 2])
            views[-1].fill_(i)
            x[:, i].add_(x[i, :1])
            found.append(x.to("cpu", copy=True))
        for view in views:
            view.mul_(3)
            found += [x.to("cpu", copy=True), view.to("cpu", copy=True)]
        return found

    alike(steps, 6)


def test_a_write_that_reads_elsewhere():
    """XLA writes in place; what is read of the same memory must be of before."""

    def steps(device: torch.device) -> list[Tensor]:
        x, found = torch.arange(24).to(device), []
        for i in range(3):
            rows = x.view(6, 4)
            rows[i : i + 3] += rows[i : i + 3].flip(0)
            rows[i].add_(rows[i + 1])
            found.append(x.to("cpu", copy=True))
        return found

    alike(steps, 2)


def test_an_index_out_of_range_raises_where_it_is_written():
    x = torch.arange(3.0).to(XLA)
    for i in range(3):
        assert x[i].item() == i
    with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0 with size 3"):
        x[3]
    with pytest.raises(IndexError, match="out of range"):
        x.select(0, -4)
    assert x[-2].item() == 1


def test_lengths_are_constants():
    """Where the shape depends on the integer, there is a program for each."""
    x = torch.arange(6.0).to(XLA)
    with counting() as counts:
        for i in (1, 2, 3, 2):
            torch.testing.assert_close((x[:i] * 2).cpu(), torch.arange(float(i)) * 2)
    assert counts.compiles == 3


def test_a_loop_inside_a_step_stays_static():
    """Each place has its own integer, the same in every step: XLA sees constants."""
    x = torch.arange(12.0).view(3, 4).to(XLA)
    for _ in range(3):
        total = x[0] + x[1] + x[2]
        xm.mark_step()
    assert total.sum().item() == 66
    states = pending.trace(XLA).root.children
    assert not any(INT in key for key in states)


def test_the_reason():
    x = torch.arange(5.0, dtype=torch.float64).to(XLA)
    for i in range(3):
        assert x[i].exp().item() == pytest.approx(math.exp(i))
    text = xla_dynamo.compiles()[-1].reason
    assert "aten.select.int: argument index was 0, and changes: it is an input now, at" in text


@pytest.mark.parametrize(
    ("op", "shape", "arguments", "expected"),
    [
        (aten.select_copy.int, (3, 4), (-1, -1), ((-1, INT), (3,))),
        (aten.select_copy.int, (3, 4), (0, 3), None),
        (aten.select_copy.int, (), (0, 0), None),
        (aten.slice_copy.Tensor, (8,), (0, -3, None), ((0, INT, 3, 1), (5,))),
        (aten.slice_copy.Tensor, (8,), (0, 6, 100, 2), ((0, INT, 1, 2), (6,))),
        (aten.slice_copy.Tensor, (8,), (0, 9, 12), None),
        (aten.slice_copy.Tensor, (8,), (), ((0, INT, 8, 1), (0,))),
        (aten.roll.default, (3, 4), ((-1, 5), (1, 0)), (((INT, INT), (1, 0)), (3, 2))),
        (aten.roll.default, (3, 4), ((13,), ()), (((INT,), ()), (1,))),
        (aten.roll.default, (0, 4), ((1,), (0,)), None),
    ],
)
def test_what_is_chosen(op, shape, arguments, expected):

    of = meta(torch.Size(shape), torch.float32)
    found = selected.choice((op_of(op), of.input(0), *arguments), 1 + len(arguments), lambda _: of)
    assert (found and (found.key[2:], found.numbers)) == expected
