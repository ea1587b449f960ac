"""Custom calls in StableHLO, and moving tensors to the host's memory."""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.errors import NotAvailable


def stablehlo_custom_call(args: Any, call_target: str, *rest: Any, **kwargs: Any) -> Any:
    """A call of a registered target.

    Raises:
        NotAvailable: always, with what to write instead.
    """
    raise NotAvailable(
        f"stablehlo_custom_call({call_target!r}): write a torch.library.custom_op and lower it "
        "with @xla_dynamo.backend.lowering.registry.lower, whose body may be any JAX function"
    )


def place_to_host(t: torch.Tensor) -> torch.Tensor:
    """The tensor: XLA decides what lies in the host's memory."""
    return t


def place_to_device(t: torch.Tensor) -> torch.Tensor:
    """The tensor: XLA decides what lies in the host's memory."""
    return t
