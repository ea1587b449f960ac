"""Policies that say which submodules are wrapped on their own: PyTorch's, by torch_xla's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.fsdp import wrap as _torch

Policy = Callable[..., bool]


def _policy(policy: Policy) -> Policy:
    """A policy of PyTorch, which calls `unwrapped_params` nonwrapped_numel."""

    @functools.wraps(policy)
    def choose(
        module: torch.nn.Module, recurse: bool, unwrapped_params: int, *args: Any, **kwargs: Any
    ) -> bool:
        return policy(module, recurse, unwrapped_params, *args, **kwargs)

    return choose


always_wrap_policy = _torch.always_wrap_policy
lambda_auto_wrap_policy = _policy(_torch.lambda_auto_wrap_policy)
transformer_auto_wrap_policy = _policy(_torch.transformer_auto_wrap_policy)
size_based_auto_wrap_policy = _policy(_torch.size_based_auto_wrap_policy)


def recursive_wrap(
    module: torch.nn.Module,
    auto_wrap_policy: Policy,
    wrapper_cls: Callable[..., torch.nn.Module],
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[torch.nn.Module, int]:
    """Wrap the submodules that a policy chooses, innermost first; their parameters' count."""
    parameters = sum(p.numel() for p in module.parameters())
    if not auto_wrap_policy(module, True, parameters):
        return module, 0
    inside = 0
    for name, child in list(module.named_children()):
        wrapped, count = recursive_wrap(child, auto_wrap_policy, wrapper_cls, **kwargs)
        setattr(module, name, wrapped)
        inside += count
    if not only_wrap_children and auto_wrap_policy(module, False, parameters - inside):
        return wrapper_cls(module, **kwargs), parameters
    return module, inside
