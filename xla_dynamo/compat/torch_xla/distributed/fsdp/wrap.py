"""Policies that say which submodules are wrapped on their own: PyTorch's, by torch_xla's names."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import torch
from torch.distributed.fsdp import wrap as _torch

Policy = Callable[..., bool]


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every submodule."""
    return True


def lambda_auto_wrap_policy(
    module: torch.nn.Module,
    recurse: bool,
    unwrapped_params: int,
    lambda_fn: Callable[[torch.nn.Module], bool],
) -> bool:
    """Submodules of which `lambda_fn` is true."""
    return _torch.lambda_auto_wrap_policy(module, recurse, unwrapped_params, lambda_fn)


def transformer_auto_wrap_policy(
    module: torch.nn.Module,
    recurse: bool,
    unwrapped_params: int,
    transformer_layer_cls: Set[type[torch.nn.Module]],
) -> bool:
    """Submodules of these classes."""
    return _torch.transformer_auto_wrap_policy(
        module, recurse, unwrapped_params, set(transformer_layer_cls)
    )


def size_based_auto_wrap_policy(
    module: torch.nn.Module,
    recurse: bool,
    unwrapped_params: int,
    min_num_params: int = 100_000_000,
    force_leaf_modules: set[type[torch.nn.Module]] | None = None,
    exclude_wrap_modules: set[type[torch.nn.Module]] | None = None,
) -> bool:
    """Submodules with at least `min_num_params` parameters that no smaller one wraps."""
    return _torch.size_based_auto_wrap_policy(
        module, recurse, unwrapped_params, min_num_params, force_leaf_modules, exclude_wrap_modules
    )


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
