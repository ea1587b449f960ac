"""Composite ops (linear, matmul) recorded as one op each, with gradients of their own.

PyTorch decomposes them before a device sees them: a linear layer is five ops forward and nine
backward, a matmul six and eight, and each costs as much to record as any. A kernel for dispatch key
XLA makes PyTorch keep them. They are decomposed when the trace is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from xla_dynamo.backend.decompositions import matmul_backward as product_gradients
from xla_dynamo.compat.recording.op_forms import RECORDED_COMPOSITES
from xla_dynamo.compat.values import torch_private
from xla_dynamo.compat.values.values import Leaf

from .redispatch import undivided, without_autograd

aten = torch.ops.aten

_LINEAR = aten.linear.default


def register_composites(library: torch.library.Library, autograd: torch.library.Library) -> None:
    """Register the kernels for dispatch keys XLA and AutogradXLA."""
    for op in RECORDED_COMPOSITES:
        name = op._schema.name.removeprefix("aten::")
        library.impl(name, unreached)
        autograd.impl(name, _composite_kernel(op))
    autograd.impl("matmul_backward", _matmul_backward)


def _composite_kernel(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any) -> Any:
        x = args[0]
        # The composite's gradient is for real numbers.
        vector = op is _LINEAR and args[1].dim() != 2  # a vector of weights: a sum of products
        if x.is_complex() or vector or is_traced(x):
            return op._op_dk(torch_private.Key.CompositeImplicitAutograd, *args)
        return undivided(op, args)

    return kernel


def is_traced(x: torch.Tensor) -> bool:
    """Whether somebody wants the parts of composites: forward mode, torch.func, a tracer."""
    if forward_ad._current_level >= 0 or not torch_private.is_functional(x):
        return True
    return type(torch_private.unwrapped(x)) is not Leaf


def _matmul_backward(grad: Any, x: Any, y: Any, mask: Any) -> Any:
    # PyTorch has no derivative of this one: where one is wanted, its parts are recorded.
    if torch.is_grad_enabled() and any(t.requires_grad for t in (grad, x, y)):
        return product_gradients.matmul_backward(grad, x, y, mask)
    return without_autograd(aten.matmul_backward.default, (grad, x, y, mask))


def unreached(*args: Any, **kwargs: Any) -> Any:
    """Leaves take every op before their backend's kernels are looked for."""
    raise AssertionError("an op on an xla tensor did not reach the recorder")
