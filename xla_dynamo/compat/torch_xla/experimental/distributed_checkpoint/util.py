"""Helpers of checkpoints."""

from __future__ import annotations

import torch

from xla_dynamo.compat.device import step_barrier


def prime_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Take one step with zero gradients, so that all state exists and can be loaded into.

    The step may change parameters (weight decay): restore them afterwards.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    step_barrier.mark_step(wait=True)
    return optimizer
