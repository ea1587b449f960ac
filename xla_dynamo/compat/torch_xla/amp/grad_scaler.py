"""Loss scaling for float16: torch.amp.GradScaler that need not read the device at each step."""

from __future__ import annotations

import inspect
from typing import Any

import torch


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler on xla devices.

    With an optimizer of torch_xla.amp.syncfree, or with `use_zero_grad`, a step is skipped on the
    device: nothing waits for the gradients' check. Any other optimizer's step is skipped on the
    host, which reads the check (one barrier more for each step).

    Args:
        use_zero_grad: instead of skipping the step of an optimizer that cannot skip on the device,
            take it with gradients of zero. State and weight decay move on.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        use_zero_grad: bool = False,
    ) -> None:
        super().__init__("xla", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._use_zero_grad = use_zero_grad

    def _maybe_opt_step(
        self, optimizer: Any, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> float | None:
        (found_inf,) = optimizer_state["found_inf_per_device"].values()
        if "found_inf" in inspect.signature(optimizer.step).parameters:
            return optimizer.step(*args, found_inf=found_inf, **kwargs)
        if not self._use_zero_grad:
            return super()._maybe_opt_step(optimizer, optimizer_state, *args, **kwargs)
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if (gradient := parameter.grad) is not None:
                        gradient.masked_fill_(found_inf != 0, 0)
        return optimizer.step(*args, **kwargs)
