"""torch.optim's SGD, Adam and AdamW whose step can be skipped on the device, given `found_inf`.

PyTorch's own step is taken, and undone where it is to be skipped: nothing reads the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class _Skippable(torch.optim.Optimizer):
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
        updated = [
            (parameter, group, self._state_of(parameter, group))
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        tensors = [t for parameter, _, state in updated for t in (parameter, *state.values())]
        tensors = [t for t in tensors if isinstance(t, torch.Tensor)]
        old = [tensor.clone() for tensor in tensors]
        for parameter, group, state in updated:
            self._before_step(parameter, group, state)
        super().step()  # type: ignore[safe-super]
        for tensor, before in zip(tensors, old, strict=True):
            tensor.copy_(torch.where(found_inf.to(tensor.device) != 0, before, tensor))
        return loss

    def _state_of(self, parameter: torch.Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter, all on its device, made where there is none."""
        raise NotImplementedError

    def _before_step(
        self, parameter: torch.Tensor, group: dict[str, Any], state: dict[str, Any]
    ) -> None:
        """Change the state so that PyTorch's step does what it does to state that it makes."""


class SGD(_Skippable, torch.optim.SGD):
    """torch.optim.SGD with `step(closure=None, found_inf=None)`."""

    def _state_of(self, parameter: torch.Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The momentum, and `step`: how many steps were taken."""
        state = self.state[parameter]
        if group["momentum"]:
            started = state.get("momentum_buffer") is not None  # by steps without found_inf
            if not started:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            if "step" not in state:
                state["step"] = torch.full((), float(started), device=parameter.device)
        return state

    def _before_step(
        self, parameter: torch.Tensor, group: dict[str, Any], state: dict[str, Any]
    ) -> None:
        """The first step sets the momentum to the gradient: nothing of it is dampened."""
        if not group["momentum"]:
            return
        if dampening := group["dampening"]:
            assert parameter.grad is not None
            gradient = -parameter.grad if group["maximize"] else parameter.grad
            gradient = gradient + group["weight_decay"] * parameter
            buffer, missing = state["momentum_buffer"], gradient * (dampening / group["momentum"])
            buffer.copy_(torch.where(state["step"] == 0, missing, buffer))
        state["step"].add_(1)


class Adam(_Skippable, torch.optim.Adam):
    """torch.optim.Adam with `step(closure=None, found_inf=None)`.

    The step count lives on the device (`capturable`), so that a skipped step does not count either.
    It is float64: in float32, 1 - 0.999**step loses four digits.
    """

    def _state_of(self, parameter: torch.Tensor, group: dict[str, Any]) -> dict[str, Any]:
        group["capturable"] = True
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device="cpu")
            for name in ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * group["amsgrad"]:
                state[name] = torch.zeros_like(parameter)
        state["step"] = state["step"].to(parameter.device, torch.float64)
        return state


class AdamW(Adam, torch.optim.AdamW):
    """torch.optim.AdamW with `step(closure=None, found_inf=None)`."""
