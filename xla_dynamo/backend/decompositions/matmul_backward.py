"""Decompose the gradients of linear and matmul to matrix products.

Where a device has a kernel of its own for `linear` (the xla device records one op instead of five),
autograd calls `linear_backward`, for which PyTorch has no decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten


def linear_backward(
    x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor, mask: Sequence[bool]
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of x @ weight.T + bias by x, weight and bias, as far as `mask` asks for them."""
    rows = _rows(grad)
    return (
        torch.matmul(grad, weight.conj()) if mask[0] else None,
        rows.t().mm(_rows(x).conj()) if mask[1] else None,
        rows.sum(0) if mask[2] else None,
    )


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2)


def matmul_backward(
    grad: torch.Tensor, x: torch.Tensor, y: torch.Tensor, mask: Sequence[bool]
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of x @ y by x and y; a vector is a matrix of one row or column."""
    left = x.unsqueeze(0) if x.dim() == 1 else x
    right = y.unsqueeze(-1) if y.dim() == 1 else y
    if x.dim() == 1:
        grad = grad.unsqueeze(-2) if y.dim() != 1 else grad.unsqueeze(-1)
    if y.dim() == 1:
        grad = grad.unsqueeze(-1)
    return (
        _summed(torch.matmul(grad, _adjoint(right)), left).reshape(x.shape) if mask[0] else None,
        _right_gradient(grad, left, right).reshape(y.shape) if mask[1] else None,
    )


def _right_gradient(grad: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if right.dim() == 2 and left.dim() > 2:  # one product instead of a batch that is summed
        return _adjoint(_rows(left)).mm(_rows(grad))
    return _summed(torch.matmul(_adjoint(left), grad), right)


def _adjoint(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.transpose(-2, -1).conj()


def _summed(gradient: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`gradient` summed over the dimensions in which `like` was broadcast."""
    return gradient.sum_to_size(like.shape) if gradient.shape != like.shape else gradient


PRODUCT_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.linear_backward.default: linear_backward,
    aten.matmul_backward.default: matmul_backward,
}
