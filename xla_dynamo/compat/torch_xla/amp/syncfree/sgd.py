"""torch.optim.SGD whose step can be skipped on the device."""

from __future__ import annotations

from typing import Any

import torch

from ._skip import Skippable, put_back


class SGD(Skippable, torch.optim.SGD):
    """torch.optim.SGD with `step(closure=None, found_inf=None)`."""

    def _step_unless(self, skip: torch.Tensor) -> None:
        for parameter, group in self._with_gradients():
            self._update(parameter, self.state[parameter], group, skip)

    def _update(
        self,
        parameter: torch.Tensor,
        state: dict[str, Any],
        group: dict[str, Any],
        skip: torch.Tensor,
    ) -> None:
        gradient = parameter.grad
        assert gradient is not None
        gradient = -gradient if group["maximize"] else gradient
        if group["weight_decay"]:
            gradient = gradient + group["weight_decay"] * parameter
        if momentum := group["momentum"]:
            buffer = self._buffer(state, gradient)
            step = state["step"]
            moved = momentum * buffer + (1 - group["dampening"]) * gradient
            moved = torch.where(step == 0, gradient, moved)
            gradient = gradient + momentum * moved if group["nesterov"] else moved
            old = [buffer.clone(), step.clone()]
            buffer.copy_(moved)
            step.add_(1)
            put_back(skip, [buffer, step], old)
        updated = parameter - group["lr"] * gradient
        parameter.copy_(torch.where(skip, parameter, updated))

    def _buffer(self, state: dict[str, Any], gradient: torch.Tensor) -> torch.Tensor:
        """The momentum; `step` counts the steps taken, of which the first one sets it."""
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(gradient)
            state["step"] = torch.zeros((), device=gradient.device)
        elif "step" not in state:  # steps were taken without found_inf
            state["step"] = torch.ones((), device=gradient.device)
        return state["momentum_buffer"]
