"""torch.optim.Adam and AdamW whose step can be skipped on the device.

The step count lives on the device (`capturable`), so that a skipped step does not count either. It
is float64: in float32, 1 - 0.999**step loses four digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._skip import evaluate, put_back, skips


class _Skippable(torch.optim.Adam):
    """Adam or AdamW with `step(closure, found_inf)`."""

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
            return super().step(closure)
        skip = skips(found_inf)
        loss = evaluate(closure)
        tensors = self._tensors()
        old = [tensor.clone() for tensor in tensors]
        super().step()
        put_back(skip, tensors, old)
        return loss

    def _tensors(self) -> list[torch.Tensor]:
        """Parameters with gradients and their state, made if there is none."""
        found: list[torch.Tensor] = []
        for group in self.param_groups:
            group["capturable"] = True
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    self._start(state, parameter, group["amsgrad"])
                state["step"] = state["step"].to(parameter.device, torch.float64)
                found.append(parameter)
                found.extend(state.values())
        return found

    def _start(self, state: dict[str, Any], parameter: torch.Tensor, amsgrad: bool) -> None:
        state["step"] = torch.zeros((), dtype=torch.float64, device=parameter.device)
        names = ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * amsgrad
        for name in names:
            state[name] = torch.zeros_like(parameter)


class Adam(_Skippable):
    """torch.optim.Adam with `step(closure=None, found_inf=None)`."""


class AdamW(_Skippable, torch.optim.AdamW):
    """torch.optim.AdamW with `step(closure=None, found_inf=None)`."""
