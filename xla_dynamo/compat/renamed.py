"""transpose_(), squeeze_(), unsqueeze_() of a tensor with views -> an error if differentiated.

Autograd makes the gradients of its views anew when a tensor was written to: on most devices from
their strides, on xla by the same views once more. Of a tensor whose dimensions are others now,
these would be of other elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import functional

aten = torch.ops.aten

_OPS = (
    aten.squeeze_.default,
    aten.squeeze_.dim,
    aten.squeeze_.dims,
    aten.t_.default,
    aten.transpose_.default,
    aten.unsqueeze_.default,
)


def register_renamed(library: torch.library.Library, slow: Callable[..., Any]) -> None:
    """Register the kernels; `slow(op, args, kwargs)` is the way that PyTorch has for `op`."""

    def make(op: Any) -> Callable[..., torch.Tensor]:
        def kernel(tensor: torch.Tensor, *args: Any) -> torch.Tensor:
            refuse_views(op, tensor)
            return slow(op, (tensor, *args), {})

        return kernel

    for op in _OPS:
        library.impl(op.name().removeprefix("aten::"), make(op))


def refuse_views(op: Any, tensor: torch.Tensor) -> None:
    """Raise if `op`, which changes dimensions in place, would make gradients of views wrong.

    Raises:
        RuntimeError: gradients are recorded, and there are views of `tensor`.
    """
    differentiated = torch.is_grad_enabled() and tensor.grad_fn is not None
    if not (differentiated and functional.is_functional(tensor) and functional.is_base(tensor)):
        return
    if functional.has_views(tensor):
        name = op._schema.name.removeprefix("aten::")
        raise RuntimeError(
            f"{name}: there are views of this tensor on an xla device, whose gradients would be "
            f"wrong afterwards; use {name.rstrip('_')}, which makes a new view of it"
        )
