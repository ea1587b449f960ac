"""What tells torch_xla's compiler something that XLA, or the recorded trace, knows by itself here.

Repeated traces are matched, updated tensors reuse their old buffers, XLA decides what lies in the
host's memory, and programs carry no marks around patterns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
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


class StableHLOCompositeBuilder:
    """Marks the inputs and outputs of a composite; the computation is the same."""

    def __init__(self, name: str, attr: dict[str, Any] | None = None) -> None:
        self.name = name
        self.attr = attr

    def mark_inputs(self, *tensors: torch.Tensor) -> Any:
        """The tensors: one as it is, several as a tuple."""
        return tensors[0] if len(tensors) == 1 else tensors

    mark_outputs = mark_inputs


def place_to_host(t: torch.Tensor) -> torch.Tensor:
    """The tensor."""
    return t


place_to_device = place_to_host


@contextlib.contextmanager
def alias_with_buffer_donor_config(should_alias: bool = True) -> Iterator[bool]:
    """Yields the setting before: False."""
    yield False
