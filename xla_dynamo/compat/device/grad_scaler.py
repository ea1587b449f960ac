"""The two ops of loss scaling on the lazy device: unscale gradients with a check, update the scale.

PyTorch's GradScaler calls them; here they are recorded like other ops, so that a scaled step stays
one program.
"""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.compat.execution.dispatch import aten
from xla_dynamo.compat.values.op_table import Op, handles


def install() -> None:
    """Record the two ops so."""
    handles(aten._amp_foreach_non_finite_check_and_unscale.default)(_unscale)
    handles(aten._amp_update_scale.default)(_update_scale)


def _unscale(op: Op, args: Any, kwargs: Any) -> Any:
    """(gradients * inv_scale, 1.0 if any gradient is not finite, else found_inf)."""
    gradients, found_inf, inv_scale = args
    peaks = aten._foreach_norm.Scalar(gradients, float("inf"))
    finite = torch.isfinite(torch.stack(list(peaks))).all()
    scaled = aten._foreach_mul.Tensor(gradients, inv_scale)
    return list(scaled), torch.where(finite, found_inf, torch.ones_like(found_inf))


def _update_scale(op: Op, args: Any, kwargs: Any) -> Any:
    """(scale, growth tracker) after a step."""
    scale, tracker, found_inf, growth, backoff, interval = args
    skipped = found_inf > 0
    successful = tracker + 1
    full = successful == interval
    grown = scale * growth
    grown = torch.where(full & torch.isfinite(grown), grown, scale)
    zero = torch.zeros_like(tracker)
    return (
        torch.where(skipped, scale * backoff, grown),
        torch.where(skipped | full, zero, successful),
    )
