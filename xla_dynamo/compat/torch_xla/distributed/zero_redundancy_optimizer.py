"""ZeRO-1: each replica keeps, and updates, the optimizer's state of its part of each parameter.

A step reduces each gradient to the parts, clips them, updates the parts, and gathers the new
parameters. A part is a stretch of dimension 0, padded to equal length. With one replica, the
optimizer holds all of its state.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from xla_dynamo.compat.recording import replicas

from ..core import _collectives


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """Wraps `optimizer_class(params, **defaults)`.

    Args:
        params: parameters or parameter groups.
        optimizer_class: the optimizer.
        optimizer_dtype: of the parts; default: the parameter's, but float32 where it has fewer
            bits.
        grad_clipping: whether step() clips the norm of the gradients.
        max_norm: what it clips to; default 1.
        sharding_groups: lists of ordinals that share a state; default: one of all replicas.
        grad_norm_groups: over which the norm is summed further.
        lazy_init: whether the script calls init_zero().
        save_master_weights: whether state_dict has the parts.
        other names: how torch_xla lays out memory and orders ops, which is XLA's business here.
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
        self.grad_clipping = grad_clipping
        self.max_norm = 1.0 if max_norm is None else max_norm
        self.optimizer_dtype, self.optimizer_class = optimizer_dtype, optimizer_class
        self.save_master_weights = save_master_weights
        self.sharding_groups, self.grad_norm_groups = sharding_groups, grad_norm_groups
        self._given = defaults
        self._grad_norm: torch.Tensor | None = None
        self._is_split = replicas.size() > 1
        groups = list(params)
        if not self._is_split:
            self.base_optimizer = optimizer_class(groups, **defaults)  # type: ignore[call-arg]
            super().__init__(self.base_optimizer.param_groups, self.base_optimizer.defaults)
            self._share()
            return
        super().__init__(groups, defaults)
        if not lazy_init:
            self.init_zero()

    def _share(self) -> None:
        self.param_groups = self.base_optimizer.param_groups
        self.state = self.base_optimizer.state

    def init_zero(self) -> None:
        """Make the parts; with one replica nothing, as the state is made when it is needed."""
        if not self._is_split:
            return
        groups = self.sharding_groups or [list(range(replicas.size()))]
        own = next((group for group in groups if replicas.rank() in group), None)
        if own is None:
            raise ValueError(
                f"Current rank {replicas.rank()} is missing from the sharding_groups {groups}"
            )
        self._count, self._place = len(own), list(own).index(replicas.rank())
        parts = [
            {**group, "params": [self._part(parameter) for parameter in group["params"]]}
            for group in self.param_groups
        ]
        self.base_optimizer = self.optimizer_class(parts, **self._given)
        for mine, base in zip(self.param_groups, self.base_optimizer.param_groups, strict=True):
            mine.update({name: base[name] for name in base if name != "params"})

    def _part(self, parameter: torch.Tensor) -> torch.nn.Parameter:
        own = self._padded(parameter.detach().cpu()).chunk(self._count)[self._place].clone()
        made = own.to(self._dtype(parameter)).to(parameter.device)
        return torch.nn.Parameter(made, requires_grad=parameter.requires_grad)

    def _dtype(self, parameter: torch.Tensor) -> torch.dtype:
        default = torch.promote_types(parameter.dtype, torch.float32)
        return self.optimizer_dtype or default

    def _padded(self, tensor: torch.Tensor) -> torch.Tensor:
        """At least one dimension, whose length all replicas share equally."""
        tensor = tensor.reshape(1) if tensor.dim() == 0 else tensor
        missing = -tensor.size(0) % self._count
        if not missing:
            return tensor
        return torch.nn.functional.pad(tensor, [0, 0] * (tensor.dim() - 1) + [0, missing])

    def _pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Each parameter that has a gradient, with this replica's part of it."""
        for mine, base in zip(self.param_groups, self.base_optimizer.param_groups, strict=True):
            for parameter, part in zip(mine["params"], base["params"], strict=True):
                if parameter.grad is not None:
                    yield parameter, part

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
        if self._is_split:
            self._step_of_parts(kwargs)
            return loss
        if self.grad_clipping:
            parameters = [p for group in self.param_groups for p in group["params"]]
            self._grad_norm = torch.nn.utils.clip_grad_norm_(parameters, self.max_norm)
        self.base_optimizer.step(**kwargs)
        return loss

    def _step_of_parts(self, kwargs: Any) -> None:
        for mine, base in zip(self.param_groups, self.base_optimizer.param_groups, strict=True):
            base.update({name: mine[name] for name in mine if name != "params"})
        for parameter, part in self._pairs():
            assert parameter.grad is not None
            mean: Any = _collectives.reduce_scatter(
                "sum",
                self._padded(parameter.grad),
                1 / self._count,
                0,
                self._count,
                self.sharding_groups,
            )
            part.grad = mean.to(part.dtype)
        if self.grad_clipping:
            self._clip()
        self.base_optimizer.step(**kwargs)
        self.base_optimizer.zero_grad(set_to_none=True)
        self._gather()

    def _clip(self) -> None:
        gradients = [part.grad for _, part in self._pairs() if part.grad is not None]
        if not gradients:
            return
        squares: Any = torch.stack([(g * g).sum() for g in gradients]).sum()
        squares = _collectives.all_reduce("sum", squares, groups=self.sharding_groups)
        if self.grad_norm_groups is not None:
            squares = _collectives.all_reduce("sum", squares, groups=self.grad_norm_groups)
        norm = self._grad_norm = squares.sqrt()
        factor = (self.max_norm / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.dtype))

    def _gather(self) -> None:
        """Give the parameters what the parts have become."""
        for parameter, part in self._pairs():
            own = part.detach().to(parameter.dtype)
            whole = _collectives.all_gather(own, 0, self.sharding_groups)
            if parameter.dim() == 0:
                parameter.copy_(whole[0])
            else:
                parameter.copy_(whole[: parameter.size(0)])

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's own; of parts, in "base_state", with the shapes of the parameters."""
        if not self._is_split:
            return self.base_optimizer.state_dict()
        found = super().state_dict()
        found["base_state"] = self.base_optimizer.state_dict()["state"]
        parameters = [p for group in self.param_groups for p in group["params"]]
        found["shape_info"] = {number: p.shape for number, p in enumerate(parameters)}
        if self.save_master_weights:
            parts = [p for group in self.base_optimizer.param_groups for p in group["params"]]
            found["sharded_master_weights"] = {n: part.detach() for n, part in enumerate(parts)}
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what state_dict gave, of this replica."""
        if not self._is_split:
            self.base_optimizer.load_state_dict(state_dict)
            self._share()
            return
        given = copy.copy(state_dict)
        state = given.pop("base_state")
        weights = given.pop("sharded_master_weights", None)
        given.pop("shape_info", None)
        super().load_state_dict(given)
        self.init_zero()
        base = self.base_optimizer.state_dict()
        self.base_optimizer.load_state_dict({**base, "state": state})
        if weights is not None:
            parts = [p for group in self.base_optimizer.param_groups for p in group["params"]]
            with torch.no_grad():
                for number, part in enumerate(parts):
                    part.copy_(weights[number])
