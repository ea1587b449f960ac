"""Slices whose start is a tensor; lowering/rules/dynamic_slice.py lowers them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .registration import op


def _slice(x: Tensor, dim: int, start: Tensor, length: int) -> Tensor:
    return x.new_empty([length if at == dim else n for at, n in enumerate(x.shape)])


@op(fake=_slice)
def dynamic_slice(x: Tensor, dim: int, start: Tensor, length: int) -> Tensor:
    """`length` elements of `x` along `dim`, from the integer 0-d tensor `start` on."""
    return torch.narrow(x, dim, start, length).clone()


@op(fake=lambda grad, sizes, dim, start: grad.new_empty(sizes))
def dynamic_slice_backward(grad: Tensor, sizes: Sequence[int], dim: int, start: Tensor) -> Tensor:
    """Zeros of shape `sizes` with `grad` where the slice was taken."""
    result = grad.new_zeros(sizes)
    torch.narrow(result, dim, start, grad.shape[dim]).copy_(grad)
    return result
