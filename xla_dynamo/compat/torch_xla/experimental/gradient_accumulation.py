"""Gradients of several batches, summed before an optimizer step, in one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def gradient_accumulation(
    train_step: Callable[..., Any],
    iterable_tensors: Sequence[torch.Tensor],
    model: torch.nn.Module,
    *carried_tensors: torch.Tensor,
) -> Any:
    """train_step of each slice along dimension 0 of `iterable_tensors`, with backward.

    train_step(*slices, *carried) gives the loss, or (loss, *carried).

    Returns:
        The sum of the losses, or (sum, *carried) if anything is carried.
    """
    total: Any = 0.0
    carried = carried_tensors
    for slices in zip(*iterable_tensors, strict=True):
        result = train_step(*slices, *carried)
        loss, carried = (result[0], tuple(result[1:])) if carried else (_first(result), ())
        loss.backward()
        total = total + loss.detach()
    return (total, *carried) if carried else total


def _first(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, (list, tuple)) else result
