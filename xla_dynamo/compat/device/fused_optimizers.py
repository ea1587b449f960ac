"""Fused forms of optimizers on xla: PyTorch's foreach forms, which XLA fuses, plus loss scaling.

A fused step takes `grad_scale`, by which it divides the gradients in place, and `found_inf`: where
that is not zero, parameters and state stay as they are. Both stay on the device.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

_ops: Any = torch  # whose ops on lists have no types
Tensors = Sequence[torch.Tensor]
# (parameters, gradients, *lists of state, **settings) -> None: updates parameters and state.
Update = Callable[..., None]


def _foreach(module: str, name: str, **settings: Any) -> Update:
    """PyTorch's foreach form, with settings that the fused one has no choice of."""
    form = getattr(importlib.import_module(module), name)
    return lambda *lists, **given: form(
        *lists, **(given | settings), grad_scale=None, found_inf=None
    )


def _adagrad(
    params: Tensors,
    grads: Tensors,
    sums: Tensors,
    steps: Tensors,
    *,
    lr: float | torch.Tensor,
    weight_decay: float,
    lr_decay: float,
    eps: float,
    maximize: bool,
    has_sparse_grad: bool,
    has_complex: bool,
    **_: Any,
) -> None:
    """Adagrad; PyTorch's foreach form would read the steps, which lie on the device here.

    Raises:
        RuntimeError: gradients are sparse or complex, as in PyTorch's fused form.
    """
    if has_sparse_grad or has_complex:
        raise RuntimeError("`fused` does not support sparse grad or complex param")
    _ops._foreach_add_(steps, 1)
    if maximize:
        grads = _ops._foreach_neg(grads)
    if weight_decay:
        grads = _ops._foreach_add(grads, params, alpha=weight_decay)
    _ops._foreach_addcmul_(sums, grads, grads)
    deviations = _ops._foreach_add(_ops._foreach_sqrt(sums), eps)
    rates = [-lr / (1 + (step - 1) * lr_decay) for step in steps]
    moves = _ops._foreach_mul(
        grads, [rate.to(p.dtype) for rate, p in zip(rates, params, strict=True)]
    )
    _ops._foreach_addcdiv_(params, moves, deviations)


def forms() -> list[tuple[Any, str, Update]]:
    """(module, name of its fused form, what does the same on xla)."""
    adam = _foreach("torch.optim.adam", "_multi_tensor_adam", capturable=True)
    found = [
        ("torch.optim.adam", "_fused_adam", adam),
        ("torch.optim.sgd", "_fused_sgd", _foreach("torch.optim.sgd", "_multi_tensor_sgd")),
        ("torch.optim.adagrad", "_fused_adagrad", _adagrad),
    ]
    return [(importlib.import_module(module), name, update) for module, name, update in found]


def on_xla(update: Update, otherwise: Update) -> Update:
    """The fused form `otherwise`, but for parameters on xla `update`, with loss scaling."""

    @functools.wraps(otherwise)
    def fused(
        params: list[torch.Tensor],
        grads: list[torch.Tensor],
        *state: list[Any],
        grad_scale: torch.Tensor | None = None,
        found_inf: torch.Tensor | None = None,
        **settings: Any,
    ) -> None:
        if not params or params[0].device.type != "xla":
            scaling = {"grad_scale": grad_scale, "found_inf": found_inf}
            otherwise(params, grads, *state, **scaling, **settings)
            return
        if grad_scale is not None:
            _ops._foreach_div_(grads, grad_scale.to(params[0].device))
        step = functools.partial(update, params, grads, *state, **settings)
        if found_inf is None:
            step()
        else:
            skipped = found_inf.to(params[0].device).reshape(()) != 0
            _unless(skipped, step, params, state, settings)

    return fused


def _unless(
    skipped: torch.Tensor,
    step: Callable[[], None],
    params: Tensors,
    state: Sequence[list[Any]],
    settings: dict[str, Any],
) -> None:
    """Take a step, and undo it on the device where it is `skipped`."""
    # The first step makes momenta: one that is skipped must make none, so this one is read.
    makes_state = bool(settings.get("momentum")) and any(t is None for each in state for t in each)
    if makes_state:
        if not skipped.item():
            step()
        return
    changed = [*params, *(t for each in state for t in each if t is not None)]
    old = [tensor.clone() for tensor in changed]
    step()
    for tensor, before in zip(changed, old, strict=True):
        tensor.copy_(torch.where(skipped, before, tensor))
