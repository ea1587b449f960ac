"""Losses: a target in the padding is one that is ignored."""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.backend.passes.padding.layouts import plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import product

from .pointwise import agreed
from .products import alike
from .reductions import divided

aten = torch.ops.aten


def _aligned(p: Padder, x: Padded, target: Padded) -> tuple[Padded, Padded]:
    """[n, classes, ...] and [n, ...] in one layout; or [classes] and []."""
    if len(x.dims) > 1:
        for d in range(len(target.dims)):
            x, target = alike(p, x, target, d + (d > 0), d)
    return p.varying(x), p.varying(target)


@pads(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss(
    p: Padder, x: Padded, target: Padded, weight: Padded | None, reduction: int, ignored: int
) -> Any:
    """The loss, and the total weight that counted."""
    x, target = _aligned(p, p.plainly(x, [min(len(x.dims) - 1, 1)]), target)
    rows = range(len(target.dims))
    target = p.masked(target, rows, ignored)
    x = p.masked(x, [d + (d > 0) for d in rows], 0)
    dims = list(target.dims) if reduction == 0 else []
    return p.give_all(p.again(x, target, weight, reduction, ignored), [dims, []])


@pads("xla_dynamo.nll_loss_of_parts.default")
def nll_loss_of_parts(
    p: Padder, below: Padded, log_total: Padded, target: Padded, *rest: Any
) -> Any:
    """The loss of `below` - `log_total`."""
    below, target = _aligned(p, p.plainly(below, [min(len(below.dims) - 1, 1)]), target)
    log_total = p.laid_out(log_total, below.dims)
    rows = range(len(target.dims))
    ignored, reduction = rest[-1], rest[-2]
    inner = [d + (d > 0) for d in rows]
    below, log_total = p.masked(below, inner, 0), p.masked(log_total, inner, 0)
    dims = list(target.dims) if reduction == 0 else []
    made = p.again(below, log_total, p.masked(target, rows, ignored), *rest)
    return p.give_all(made, [dims, []])


@pads(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(
    p: Padder,
    grad: Padded,
    x: Padded,
    target: Padded,
    weight: Padded | None,
    reduction: int,
    ignored: int,
    total: Padded,
) -> Padded:
    """Zero for what is ignored."""
    x, target = _aligned(p, p.plainly(x, [min(len(x.dims) - 1, 1)]), target)
    grad, target = _of_rows(p, grad, target, ignored)
    return p.give(p.again(grad, x, target, weight, reduction, ignored, total), x.dims)


def _of_rows(p: Padder, grad: Padded, target: Padded, ignored: int) -> tuple[Padded, Padded]:
    rows = range(len(target.dims))
    if grad.dims:
        target = p.varying(target)
        grad = p.masked(p.laid_out(grad, target.dims), rows, 0)
    return grad, p.masked(target, rows, ignored)


@pads("xla_dynamo.nll_loss_row_gradient.default")
def nll_loss_row_gradient(
    p: Padder,
    grad: Padded,
    target: Padded,
    weight: Padded | None,
    reduction: int,
    ignored: int,
    total: Padded,
) -> Padded:
    """Zero for what is ignored."""
    grad, target = _of_rows(p, grad, target, ignored)
    dims = list(target.dims)
    dims.insert(min(len(dims), 1), plain(1))
    return p.give(p.again(grad, target, weight, reduction, ignored, total), dims)


@pads(aten.smooth_l1_loss_backward.default)
def smooth_l1_backward(
    p: Padder, grad: Padded, x: Padded, target: Padded, reduction: int, beta: Any
) -> Padded:
    """Of a mean, by the count of this call."""
    dims, (grad, x, target) = agreed(p, [grad, x, target], p.out())
    if reduction != 1:
        return p.give(p.again(grad, x, target, reduction, beta), dims)
    made = p.give(p.again(grad, x, target, 2, beta), dims)
    return divided(p, made, product(p.out()))
