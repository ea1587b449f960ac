"""multi_margin_loss and multilabel_margin_loss, in place of PyTorch's wrong decompositions.

PyTorch's, which AOTAutograd differentiates, pass gradients where a margin is just met, take the
padding after the last target for targets of class 0, and return the loss of a single row with a
dimension. Calls are exchanged in Dynamo's graph, and these are decompositions below autograd.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from xla_dynamo.backend.graph.torch_private import (
    nn_functions,
    old_reduction_number,
    reduction_number,
)

aten = torch.ops.aten

_MEAN, _SUM = 1, 2


def multi_margin_loss(
    self: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    """aten.multi_margin_loss of valid operands."""
    rows, index = torch.atleast_2d(self), torch.atleast_1d(target).unsqueeze(1)
    slack = margin - rows.gather(1, index) + rows
    other = torch.arange(rows.shape[1], device=rows.device) != index
    loss = torch.where((slack > 0) & other, slack, 0)
    if p == 2:
        loss = loss * loss
    if weight is not None:
        loss = loss * weight[index]
    return _reduced(loss.sum(1) / rows.shape[1], target.shape, reduction)


def multilabel_margin_loss_forward(
    self: Tensor, target: Tensor, reduction: int
) -> tuple[Tensor, Tensor]:
    """aten.multilabel_margin_loss_forward; a row of targets ends at its first negative one."""
    rows, targets = torch.atleast_2d(self), torch.atleast_2d(target)
    valid = torch.cumprod((targets >= 0).int(), 1).bool()
    index = torch.where(valid, targets, 0)
    classes = torch.arange(rows.shape[1], device=rows.device)
    is_target = ((index.unsqueeze(2) == classes) & valid.unsqueeze(2)).any(1)
    slack = 1 - rows.gather(1, index).unsqueeze(2) + rows.unsqueeze(1)
    pairs = (slack > 0) & valid.unsqueeze(2) & ~is_target.unsqueeze(1)
    loss = torch.where(pairs, slack, 0).sum((1, 2)) / rows.shape[1]
    reduced = _reduced(loss, target.shape[: target.dim() - 1], reduction)
    return reduced, is_target.to(self.dtype).reshape(target.shape)


def multilabel_margin_loss(self: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    """aten.multilabel_margin_loss."""
    return multilabel_margin_loss_forward(self, target, reduction)[0]


def _functional(loss: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of torch.nn.functional, which has names for the reductions of an ATen op."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        names = ("size_average", "reduce", "reduction")
        how = _reduction(*(given.arguments.pop(name) for name in names))
        return loss(*given.arguments.values(), how)

    return run


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> int:
    """The integer that torch.nn.functional passes to the ATen op."""
    if size_average is None and reduce is None:
        return reduction_number(reduction)
    return old_reduction_number(size_average, reduce, emit_warning=False)


def _reduced(loss: Tensor, shape: torch.Size, reduction: int) -> Tensor:
    if reduction == _MEAN:
        return loss.mean()
    return loss.sum() if reduction == _SUM else loss.reshape(shape)


MARGIN_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.multi_margin_loss.default: multi_margin_loss,
    aten.multilabel_margin_loss_forward.default: multilabel_margin_loss_forward,
}
# What a program may call, and what it is exchanged for.
MARGIN_CALLS: dict[object, Callable[..., Any]] = {
    **MARGIN_DECOMPOSITIONS,
    aten.multi_margin_loss: multi_margin_loss,
    functional.multi_margin_loss: _functional(multi_margin_loss, functional.multi_margin_loss),
    nn_functions.multi_margin_loss: multi_margin_loss,
    aten.multilabel_margin_loss_forward: multilabel_margin_loss_forward,
    aten.multilabel_margin_loss.default: multilabel_margin_loss,
    aten.multilabel_margin_loss: multilabel_margin_loss,
    functional.multilabel_margin_loss: _functional(
        multilabel_margin_loss, functional.multilabel_margin_loss
    ),
    nn_functions.multilabel_margin_loss: multilabel_margin_loss,
}
