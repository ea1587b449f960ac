"""A function whose forward has a padded form and whose backward has none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Odd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.cos()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad + x.sin().median(0).values
