"""Margin losses through both doors: margins that are just met, targets that end early, one row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import xla_dynamo.compat  # noqa: F401  (registers the device xla)

aten = torch.ops.aten

# Multiples of a half: many margins of 1 are just met.
ROWS = torch.tensor([[0.0, 0.5, 1.0, 1.5], [1.0, 0.0, 0.0, -1.0], [0.5, 0.5, 1.5, 0.5]])
CLASS = torch.tensor([2, 0, 3])
CLASSES = torch.tensor([[2, -1, 0, 1], [0, 1, -1, -1], [-1, 0, 1, 2]])
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.25])

CALLS: dict[str, tuple[Callable[..., Tensor], Tensor]] = {
    "margin": (F.multi_margin_loss, CLASS),
    "margin, each row": (lambda x, y: F.multi_margin_loss(x, y, reduction="none"), CLASS),
    "squares": (lambda x, y: F.multi_margin_loss(x, y, p=2, margin=0.5, reduction="sum"), CLASS),
    "weights": (lambda x, y: F.multi_margin_loss(x, y, weight=WEIGHT.to(x.device)), CLASS),
    "legacy": (lambda x, y: F.multi_margin_loss(x, y, 1, 1.0, None, False), CLASS),
    "aten": (lambda x, y: aten.multi_margin_loss(x, y, 1, 1.0, None, 0), CLASS),
    "one row": (lambda x, y: F.multi_margin_loss(x[0], y[0], reduction="none"), CLASS),
    "a list of one": (lambda x, y: F.multi_margin_loss(x[0], y[:1], reduction="none"), CLASS),
    "labels": (F.multilabel_margin_loss, CLASSES),
    "labels, each row": (lambda x, y: F.multilabel_margin_loss(x, y, reduction="none"), CLASSES),
    "labels, sum": (lambda x, y: F.multilabel_margin_loss(x, y, reduction="sum"), CLASSES),
    "labels, legacy": (lambda x, y: F.multilabel_margin_loss(x, y, True, False), CLASSES),
    "labels, aten": (lambda x, y: aten.multilabel_margin_loss(x, y, 0), CLASSES),
    "labels of one row": (lambda x, y: F.multilabel_margin_loss(x[1], y[1]), CLASSES),
}


def _with_gradient(call: Any, rows: Tensor, target: Tensor) -> list[Tensor]:
    x = rows.clone().requires_grad_()
    loss = call(x, target)
    return [loss.detach().cpu(), torch.autograd.grad(loss.sum(), x)[0].cpu()]


@pytest.mark.parametrize("name", CALLS)
def test_both_doors_give_what_eager_gives(name: str) -> None:
    call, target = CALLS[name]
    expected = _with_gradient(call, ROWS, target)
    compiled = _with_gradient(torch.compile(call, backend="xla"), ROWS, target)
    lazy = _with_gradient(call, ROWS.to("xla"), target.to("xla"))
    for ours, lazily, theirs in zip(compiled, lazy, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(lazily, theirs)


def test_no_number_leaves_no_gap() -> None:
    """As eager has it: what is NaN is not above the margin."""
    rows = torch.where(ROWS == 0, torch.nan, ROWS)
    for call, target in (CALLS["margin, each row"], CALLS["labels, each row"]):
        theirs = call(rows, target)
        torch.testing.assert_close(torch.compile(call, backend="xla")(rows, target), theirs)
        torch.testing.assert_close(call(rows.to("xla"), target.to("xla")).cpu(), theirs)
