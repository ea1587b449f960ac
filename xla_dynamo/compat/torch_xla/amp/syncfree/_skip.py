"""What the optimizers share: checks, and choosing between old and new on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def skips(found_inf: torch.Tensor) -> torch.Tensor:
    """Whether to skip, as a 0-d bool tensor.

    Raises:
        ValueError: `found_inf` is not 0-d.
    """
    if found_inf.shape:
        raise ValueError("The found_inf tensor has to be scalar type")
    return found_inf != 0


def evaluate(closure: Callable[[], Any] | None) -> Any:
    """What the closure returns, with gradients enabled; None without one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def put_back(
    skip: torch.Tensor, tensors: Sequence[torch.Tensor], old: Sequence[torch.Tensor]
) -> None:
    """Give each tensor its old value, if `skip`, without reading it."""
    for tensor, before in zip(tensors, old, strict=True):
        tensor.copy_(torch.where(skip.to(tensor.device), before, tensor))
