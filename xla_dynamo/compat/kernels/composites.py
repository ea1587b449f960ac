"""Ops that PyTorch takes apart before a device sees them, recorded whole.

A linear layer is five ops forward and nine backward, a matmul six and eight; each costs as much to
record as any. A kernel for dispatch key XLA makes PyTorch keep them whole, with gradients of their
own. They are taken apart when a window is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from xla_dynamo.backend.decompositions import matmul_backward as product_gradients
from xla_dynamo.compat.recording.op_forms import KEPT_WHOLE
from xla_dynamo.compat.values import torch_private
from xla_dynamo.compat.values.values import Leaf

aten = torch.ops.aten

_LINEAR = aten.linear.default


def register_composites(
    library: torch.library.Library,
    autograd: torch.library.Library,
    keep: Callable[[Any, Any], Any],
    below: Callable[[Any, Any], Any],
) -> None:
    """Register the kernels for dispatch keys XLA and AutogradXLA.

    `keep(op, args)` runs an op by the autograd kernel that PyTorch has for devices with a kernel of
    their own for it; `below(op, args)` by what comes after autograd.
    """
    for op in KEPT_WHOLE:
        name = op._schema.name.removeprefix("aten::")
        library.impl(name, _unreached)
        autograd.impl(name, _whole_if_possible(op, keep))

    def matmul_backward(grad: Any, x: Any, y: Any, mask: Any) -> Any:
        # PyTorch has no derivative of this one: where one is wanted, its parts are recorded.
        if torch.is_grad_enabled() and any(t.requires_grad for t in (grad, x, y)):
            return product_gradients.matmul_backward(grad, x, y, mask)
        return below(aten.matmul_backward.default, (grad, x, y, mask))

    autograd.impl("matmul_backward", matmul_backward)


def _whole_if_possible(op: Any, keep: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    composite = torch_private.Key.CompositeImplicitAutograd

    def kernel(*args: Any) -> Any:
        x = args[0]
        # The gradients of the whole op are for real numbers and reverse mode; tracers want parts.
        if (
            x.is_complex()
            or (op is _LINEAR and args[1].dim() != 2)  # a vector of weights: the sum of products
            or forward_ad._current_level >= 0
            or not torch_private.is_functional(x)
            or type(torch_private.unwrapped(x)) is not Leaf
        ):
            return op._op_dk(composite, *args)
        return keep(op, args)

    return kernel


def _unreached(*args: Any, **kwargs: Any) -> Any:
    """Leaves take every op before their backend's kernels are looked for."""
    raise AssertionError("an op on an xla tensor did not reach the recorder")
