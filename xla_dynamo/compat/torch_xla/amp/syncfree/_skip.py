"""Optimizers whose step can be skipped on the device: what SGD, Adam and AdamW share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch


class Skippable(torch.optim.Optimizer):
    """An optimizer with `step(closure=None, found_inf=None)`."""

    @torch.no_grad()
    def step(  # type: ignore[override]
        self,
        closure: Callable[[], Any] | None = None,
        found_inf: torch.Tensor | None = None,
    ) -> Any:
        """Take a step, unless `found_inf` (0-d) is not zero.

        Raises:
            ValueError: `found_inf` is not 0-d.
        """
        if found_inf is None:
            return super().step(closure)  # type: ignore[safe-super]
        if found_inf.shape:
            raise ValueError("The found_inf tensor has to be scalar type")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_unless(found_inf != 0)
        return loss

    def _step_unless(self, skip: torch.Tensor) -> None:
        raise NotImplementedError

    def _with_gradients(self) -> Iterator[tuple[torch.Tensor, dict[str, Any]]]:
        """Each parameter that has a gradient, and its group."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    yield parameter, group


def put_back(
    skip: torch.Tensor, tensors: Sequence[torch.Tensor], old: Sequence[torch.Tensor]
) -> None:
    """Give each tensor its old value, if `skip`, without reading it."""
    for tensor, before in zip(tensors, old, strict=True):
        tensor.copy_(torch.where(skip.to(tensor.device), before, tensor))
