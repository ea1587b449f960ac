"""The sum over classes of the gradient of nll_loss; lowering/rules/losses.py lowers it."""

from __future__ import annotations

import torch
from torch import Tensor

from .registration import op


@op(fake=lambda grad, target, *_: grad.new_empty(target.shape).unsqueeze(min(target.dim(), 1)))
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
    shares = grad if weight is None else grad * weight[torch.where(counted, target, 0)]
    shares = shares / total_weight if reduction == 1 else shares
    return torch.where(counted, -shares, 0).unsqueeze(min(target.dim(), 1))
