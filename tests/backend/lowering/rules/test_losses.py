"""Losses of class indices, and their gradients, against eager."""

from __future__ import annotations

import pytest
import torch

import xla_dynamo.backend.lowering.rules.losses  # noqa: F401
from tests.like_eager.rules import check, check_rounding

aten = torch.ops.aten

REDUCTIONS = [0, 1, 2]


def _nll(shape, dtype=torch.float32):
    x = torch.randn(shape).log_softmax(min(len(shape) - 1, 1)).to(dtype)
    classes = shape[1] if len(shape) > 1 else shape[0]
    target = torch.randint(classes, (*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    ops = (
        (aten.nll_loss2d_forward.default, aten.nll_loss2d_backward.default)
        if len(shape) == 4
        else (aten.nll_loss_forward.default, aten.nll_loss_backward.default)
    )
    return *ops, x, target, torch.rand(classes).to(dtype)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_smooth_l1_loss_backward(reduction, dtype):
    x = torch.tensor([float("nan"), float("inf"), -2.0, 0.3, 0.0, 0.7], dtype=dtype)
    for beta in (0.0, 0.7, 1.0):
        for grad in (torch.tensor(1.5, dtype=dtype), torch.randn(6).to(dtype)):
            target = torch.zeros_like(x)
            check(aten.smooth_l1_loss_backward.default, grad, x, target, reduction, beta)


@pytest.mark.parametrize("shape", [(6, 4), (4,), (2, 4, 3, 2), (0, 4)])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("ignore_index", [-100, 2])
def test_nll_loss(shape, reduction, weighted, ignore_index):
    forward, backward, x, target, weight = _nll(shape)
    settings = (weight if weighted else None, reduction, ignore_index)
    check(forward, x, target, *settings)
    loss, count = forward(x, target, *settings)
    check(backward, torch.randn_like(loss), x, target, *settings, count)


def test_nothing_but_ignored_targets():
    x, target = torch.randn(3, 4), torch.full((3,), -100)
    for reduction in REDUCTIONS:
        check(aten.nll_loss_forward.default, x, target, None, reduction, -100)


def test_ignored_rows_may_be_infinite():
    x, target = torch.full((2, 3), -float("inf")), torch.tensor([1, 1])
    for reduction in (0, 2):
        check(aten.nll_loss_forward.default, x, target, None, reduction, 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_dtypes(dtype, reduction):
    forward, backward, x, target, weight = _nll((6, 4), dtype)
    compare = check if dtype == torch.float64 else check_rounding
    compare(forward, x, target, weight, reduction, 2)
    loss, count = forward(x, target, weight, reduction, 2)
    compare(backward, torch.randn_like(loss), x, target, weight, reduction, 2, count)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(6, 4), (4,), ()])
def test_multi_margin_loss(p, reduction, weighted, shape):
    x, target = torch.randn(shape), torch.randint(shape[-1] if shape else 1, shape[:-1])
    settings = (p, 0.7, torch.rand(shape[-1:] or 1) if weighted else None, reduction)
    grad = torch.randn_like(aten.multi_margin_loss(x, target, *settings))
    check(aten.multi_margin_loss_backward.default, grad, x, target, *settings)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_multilabel_margin_loss(reduction):
    target = torch.tensor([[1, 3, -1, 0], [2, -1, 1, 1], [-1, 0, 1, 2], [0, 1, 2, 3]])
    x = torch.randn(4, 4)
    loss, is_target = aten.multilabel_margin_loss_forward(x, target, reduction)
    args = (torch.randn_like(loss), x, target, reduction, is_target)
    check(aten.multilabel_margin_loss_backward.default, *args)
    loss, is_target = aten.multilabel_margin_loss_forward(x[0], target[0], reduction)
    args = (torch.randn_like(loss), x[0], target[0], reduction, is_target)
    check(aten.multilabel_margin_loss_backward.default, *args)
