"""Softmax and its gradients along a padded dimension."""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads

from .pointwise import agreed

aten = torch.ops.aten


@pads(aten._softmax.default, aten._log_softmax.default)
def softmax(p: Padder, x: Padded, dim: int, *rest: Any) -> Padded:
    """Padding has the weight 0."""
    if not x.dims:
        return p.give(p.again(x, dim, *rest), [])
    x = p.masked(x, [dim], "lowest")
    return p.give(p.again(x, dim, *rest), x.dims)


@pads(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default)
def softmax_backward(p: Padder, grad: Padded, y: Padded, dim: int, *rest: Any) -> Padded:
    """Sums along `dim`."""
    dims, (grad, y) = agreed(p, [grad, y], p.out())
    if dims:
        grad, y = p.masked(grad, [dim], 0), p.masked(y, [dim], 0)
    return p.give(p.again(grad, y, dim, *rest), dims)
