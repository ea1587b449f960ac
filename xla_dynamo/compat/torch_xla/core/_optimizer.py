"""The optimizer's step of a replica: gradients reduced, parameters updated, the step ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.recording import replicas

from . import _collectives


def fetch_gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The gradients of all parameters that have one."""
    return [
        parameter.grad.data
        for group in optimizer.param_groups
        for parameter in group["params"]
        if isinstance(parameter, torch.Tensor) and parameter.grad is not None
    ]


def reduce_gradients(
    optimizer: torch.optim.Optimizer, groups: Any = None, pin_layout: bool = True, **kwargs: Any
) -> None:
    """Average the gradients over the replicas of each group; nothing to do where there is one."""
    count = len(groups[0]) if groups else replicas.size()
    if count > 1:
        gradients = fetch_gradients(optimizer)
        _collectives.all_reduce(_collectives.REDUCE_SUM, gradients, 1.0 / count, groups)


def all_reduce_bucketized_gradients(
    gradients: list[torch.Tensor],
    scale: float,
    groups: Any = None,
    pin_layout: bool = True,
    bucket_cap_mb: int = 0,
) -> None:
    """Sum gradients over the replicas, times `scale`, in place: nothing to do for one."""
    if replicas.size() > 1:
        _collectives.all_reduce(
            _collectives.REDUCE_SUM, gradients, scale, groups, pin_layout=pin_layout
        )


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: Mapping[str, Any] | None = None,
    groups: Any = None,
    pin_layout: bool = True,
    closure: Any = None,
) -> Any:
    """Reduce gradients, then `optimizer.step(**optimizer_args)`, whose result it returns.

    With `barrier` the step ends here. A closure (an argument of 2019, in the place of `barrier`) is
    handed to the optimizer, and the step ends here.
    """
    arguments = dict(optimizer_args or {})
    if callable(barrier):
        barrier, closure = True, barrier
    if closure is not None:
        arguments["closure"], barrier = closure, True
    reduce_gradients(optimizer, groups, pin_layout)
    loss = optimizer.step(**arguments)
    if barrier:
        step_barrier.mark_step()
    return loss
