"""assume_pure promises that a function may be traced once; repeated traces are matched anyway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])


def assume_pure(
    fn: Callable[..., Any] | None = None, *, add_rng_seed_argument: bool = False
) -> Any:
    """The function itself."""
    return (lambda function: function) if fn is None else fn


def assume_pure_torch(func: F, use_cache: bool = False) -> F:
    """The function itself."""
    return func


class PureModule(torch.nn.Module):
    """A module that calls another one."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The other module's output."""
        return self._module(*args, **kwargs)
