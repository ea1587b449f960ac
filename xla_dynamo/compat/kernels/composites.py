"""Ops that PyTorch takes apart before a device sees them, recorded whole.

A linear layer is five ops forward and nine backward, a matmul six and eight; each costs as much to
record as any. A kernel for dispatch key XLA makes PyTorch keep them whole, with gradients of their
own. They are taken apart when a window is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from xla_dynamo.backend.decompositions import matmul_backward as product_gradients
from xla_dynamo.backend.decompositions.matmul_backward import PRODUCT_DECOMPOSITIONS
from xla_dynamo.compat.values import functionalization
from xla_dynamo.compat.values.values import Leaf

aten = torch.ops.aten

_LINEAR = aten.linear.default
_WHOLE = (_LINEAR, aten.matmul.default)


def _taken_apart(op: Any) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        return op(*args)  # traced, a composite op leaves its parts

    return run


def _resize(x: torch.Tensor, size: Sequence[int], memory_format: Any = None) -> torch.Tensor:
    """The first elements of `x` in its order; what is beyond them is not specified: zeros."""
    flat = x.reshape(-1)
    missing = math.prod(size) - flat.numel()
    if missing > 0:
        return torch.constant_pad_nd(flat, (0, missing)).view(size)
    return flat[: flat.numel() + missing].view(size)


def _resize_as(x: torch.Tensor, other: torch.Tensor, memory_format: Any = None) -> torch.Tensor:
    return _resize(x, other.shape)


# op -> the function whose trace replaces it in a window's graph.
COMPOSITES: dict[Any, Callable[..., Any]] = {
    **{op: _taken_apart(op) for op in _WHOLE},
    **PRODUCT_DECOMPOSITIONS,
    aten.resize.default: _resize,
    aten.resize_as.default: _resize_as,
}


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
    for op in _WHOLE:
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
    composite = torch._C.DispatchKey.CompositeImplicitAutograd

    def kernel(*args: Any) -> Any:
        x = args[0]
        # The gradients of the whole op are for real numbers and reverse mode; tracers want parts.
        if (
            x.is_complex()
            or (op is _LINEAR and args[1].dim() != 2)  # a vector of weights: the sum of products
            or forward_ad._current_level >= 0
            or not functionalization.is_functional(x)
            or type(functionalization.unwrapped(x)) is not Leaf
        ):
            return op._op_dk(composite, *args)
        return keep(op, args)

    return kernel


def _unreached(*args: Any, **kwargs: Any) -> Any:
    """Leaves take every op before their backend's kernels are looked for."""
    raise AssertionError("an op on an xla tensor did not reach the recorder")
