"""torch_xla_py.xla_model: torch_xla.core.xla_model, but every optimizer step ends the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch_xla.core import xla_model as _now


def __getattr__(name: str) -> Any:
    return getattr(_now, name)


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    closure: Callable[[], Any] | bool | None = None,
    optimizer_args: Mapping[str, Any] | None = None,
    barrier: bool = True,
) -> Any:
    """Reduce gradients, optimizer.step(closure), end the step; what the optimizer returns."""
    function = closure if callable(closure) else None
    return _now.optimizer_step(
        optimizer, barrier=True, optimizer_args=optimizer_args, closure=function
    )
