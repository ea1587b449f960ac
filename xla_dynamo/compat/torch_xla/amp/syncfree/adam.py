"""torch.optim.Adam and AdamW whose step can be skipped on the device.

The step count lives on the device (`capturable`), so that a skipped step does not count either. It
is float64: in float32, 1 - 0.999**step loses four digits.
"""

from __future__ import annotations

from typing import Any

import torch

from ._skip import Skippable, put_back


class Adam(Skippable, torch.optim.Adam):
    """torch.optim.Adam with `step(closure=None, found_inf=None)`."""

    def _step_unless(self, skip: torch.Tensor) -> None:
        tensors = self._tensors()
        old = [tensor.clone() for tensor in tensors]
        super().step()
        put_back(skip, tensors, old)

    def _tensors(self) -> list[torch.Tensor]:
        """Parameters with gradients and their state, which is made where there is none."""
        found: list[torch.Tensor] = []
        for group in self.param_groups:
            group["capturable"] = True
        for parameter, group in self._with_gradients():
            state = self.state[parameter]
            if not state:
                self._start(state, parameter, group["amsgrad"])
            state["step"] = state["step"].to(parameter.device, torch.float64)
            found += [parameter, *state.values()]
        return found

    def _start(self, state: dict[str, Any], parameter: torch.Tensor, amsgrad: bool) -> None:
        state["step"] = torch.zeros((), dtype=torch.float64, device=parameter.device)
        names = ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * amsgrad
        for name in names:
            state[name] = torch.zeros_like(parameter)


class AdamW(Adam, torch.optim.AdamW):
    """torch.optim.AdamW with `step(closure=None, found_inf=None)`."""
