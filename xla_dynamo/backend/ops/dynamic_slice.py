"""Slices whose start is a tensor; lowering/rules/slicing.py lowers them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.library.custom_op("xla_dynamo::dynamic_slice", mutates_args=())
def dynamic_slice(x: Tensor, dim: int, start: Tensor, length: int) -> Tensor:
    """`length` elements of `x` along `dim`, from the integer 0-d tensor `start` on."""
    return torch.narrow(x, dim, start, length).clone()


@torch.library.custom_op("xla_dynamo::dynamic_slice_backward", mutates_args=())
def dynamic_slice_backward(grad: Tensor, sizes: Sequence[int], dim: int, start: Tensor) -> Tensor:
    """Zeros of shape `sizes` with `grad` in the place of the slice."""
    result = grad.new_zeros(sizes)
    torch.narrow(result, dim, start, grad.shape[dim]).copy_(grad)
    return result


@dynamic_slice.register_fake
def _(x: Tensor, dim: int, start: Tensor, length: int) -> Tensor:
    sizes = list(x.shape)
    sizes[dim] = length
    return x.new_empty(sizes)


@dynamic_slice_backward.register_fake
def _(grad: Tensor, sizes: Sequence[int], dim: int, start: Tensor) -> Tensor:
    return grad.new_empty(sizes)
