"""ZeRO-1 over one replica: an optimizer that holds all of its state, with gradient clipping."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """Wraps `optimizer_class(params, **defaults)`.

    Args:
        params: parameters or parameter groups.
        optimizer_class: the optimizer.
        grad_clipping: whether step() clips the norm of the gradients.
        max_norm: what it clips to; default 1.
        other names: how state is split over replicas, of which there is one.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[torch.optim.Optimizer],
        optimizer_dtype: torch.dtype | None = None,
        grad_clipping: bool = True,
        max_norm: float | None = None,
        pin_layout: bool = True,
        sharding_groups: Any = None,
        grad_norm_groups: Any = None,
        lazy_init: bool = False,
        bucket_cap_mb_all_gather: int = 0,
        bucket_cap_mb_reduce_scatter: int = 0,
        use_grad_acc_hook: bool = False,
        save_master_weights: bool = False,
        higher_cc_precision: bool = False,
        **defaults: Any,
    ) -> None:
        self.base_optimizer = optimizer_class(list(params), **defaults)  # type: ignore[call-arg]
        self.grad_clipping = grad_clipping
        self.max_norm = 1.0 if max_norm is None else max_norm
        self._grad_norm: torch.Tensor | None = None
        super().__init__(self.base_optimizer.param_groups, self.base_optimizer.defaults)
        self.param_groups = self.base_optimizer.param_groups
        self.state = self.base_optimizer.state

    def init_zero(self) -> None:
        """Nothing: the state is made as it is needed."""

    @property
    def grad_norm(self) -> torch.Tensor | None:
        """The norm of the gradients at the last step, before clipping."""
        return self._grad_norm

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Clip, then the optimizer's own step; what a closure returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self.grad_clipping:
            parameters = [p for group in self.param_groups for p in group["params"]]
            self._grad_norm = torch.nn.utils.clip_grad_norm_(parameters, self.max_norm)
        self.base_optimizer.step(**kwargs)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's own."""
        return self.base_optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what state_dict gave."""
        self.base_optimizer.load_state_dict(state_dict)
        self.param_groups = self.base_optimizer.param_groups
        self.state = self.base_optimizer.state
