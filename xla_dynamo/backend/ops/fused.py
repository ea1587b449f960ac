"""Ops that passes put in place of several of ATen's; lowering/rules lower them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .registration import op

aten = torch.ops.aten


@op()
def reverse_cumsum(x: Tensor, dim: int) -> Tensor:
    """For each element along `dim`, the sum of it and all after it."""
    return x.flip(dim).cumsum(dim).flip(dim)


@op()
def relu_backward(grad: Tensor, x: Tensor) -> Tensor:
    """`grad` with 0 where `x`, of the same shape and dtype, is 0 or less."""
    return aten.threshold_backward(grad, x, 0)


@op()
def hardtanh_backward(grad: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    """`grad` with 0 where `x`, of the same shape and dtype, is not between two numbers."""
    return torch.where((x <= low) | (x >= high), 0.0, grad)


@op()
def hardswish(x: Tensor) -> Tensor:
    """Of floats: `x`, times what is linear between -3, where it is 0, and 3, where it is 1."""
    return x * (x + 3).clamp(min=0).clamp(max=6) / 6


@op()
def hardswish_backward(grad: Tensor, x: Tensor) -> Tensor:
    """`grad`, of the shape and dtype of `x`, times the slope of hardswish there."""
    return torch.where(x <= -3, 0.0, torch.where(x < 3, grad * (x / 3 + 0.5), grad))


@op()
def leaky_relu_backward(grad: Tensor, x: Tensor, slope: float) -> Tensor:
    """`grad`, times `slope` where `x`, of the same shape and dtype, is not above 0."""
    return torch.where(x > 0, grad, grad * slope)


@op(fake=lambda x, dim, _, length: x.narrow(dim, 0, length).clone())
def dynamic_slice(x: Tensor, dim: int, start: Tensor, length: int) -> Tensor:
    """`length` elements of `x` along `dim`, from the integer 0-d tensor `start` on."""
    return torch.narrow(x, dim, start, length).clone()


@op(fake=lambda grad, sizes, dim, start: grad.new_empty(sizes))
def dynamic_slice_backward(grad: Tensor, sizes: Sequence[int], dim: int, start: Tensor) -> Tensor:
    """Zeros of shape `sizes` with `grad` where the slice was taken."""
    result = grad.new_zeros(sizes)
    torch.narrow(result, dim, start, grad.shape[dim]).copy_(grad)
    return result


@op(fake=lambda x, part, dim, start: x.new_empty(x.shape))
def dynamic_update(x: Tensor, part: Tensor, dim: int, start: Tensor) -> Tensor:
    """`x` with `part`, of its dtype, along `dim` from the integer 0-d tensor `start` on."""
    result = x.clone(memory_format=torch.contiguous_format)
    torch.narrow(result, dim, start, part.shape[dim]).copy_(part)
    return result


@op(fake=lambda x, y: x.new_empty((x.shape[-1], y.shape[-1])))
def rows_product(x: Tensor, y: Tensor) -> Tensor:
    """The sum over all leading dimensions, which are the same, of outer products of rows."""
    return x.flatten(0, -2).t() @ y.flatten(0, -2)


def _loss_of_parts(below: Tensor, _: Tensor, target: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _nll_loss(below, target, *rest)


def _nll_loss(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    forward = aten.nll_loss2d_forward if x.dim() > 2 else aten.nll_loss_forward
    loss, total_weight = forward(x, *arguments)
    return loss, total_weight


@op(fake=_loss_of_parts)
def nll_loss_of_parts(
    below: Tensor,
    log_total: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """nll_loss_forward of `below` - `log_total`, which has one number for each row."""
    return _nll_loss(below - log_total, target, weight, reduction, ignore_index)


@op()
def nll_loss_row_gradient(
    grad: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """The sum over the classes, the axis of `target` after its first, of nll_loss_backward."""
    counted = target != ignore_index
    # Not weight[...], which asks a 0-d index for its number.
    shares = grad if weight is None else grad * weight.take(torch.where(counted, target, 0))
    shares = shares / total_weight if reduction == 1 else shares
    return torch.where(counted, -shares, 0).contiguous().unsqueeze(min(target.dim(), 1))
