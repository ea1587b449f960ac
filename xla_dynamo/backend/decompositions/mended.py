"""Ops whose decomposition in PyTorch, and with it the inference of their shapes, is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .margin_losses import MARGIN_DECOMPOSITIONS


def _threshold_backward(grad: torch.Tensor, x: torch.Tensor, threshold: complex) -> torch.Tensor:
    """Promotes its operands, as eager does."""
    return torch.where(x <= threshold, 0, grad.to(torch.result_type(grad, x)))


MENDED: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.threshold_backward.default: _threshold_backward,
    **MARGIN_DECOMPOSITIONS,
}
