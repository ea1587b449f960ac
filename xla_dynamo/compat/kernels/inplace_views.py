"""transpose_(), squeeze_(), unsqueeze_() among views -> an error where gradients would be wrong.

Autograd makes the gradients of its views anew when a tensor was written to: on most devices from
their strides, on xla by the same views once more. Of a tensor whose dimensions are others now,
these would be of other elements; and the same views do not give one whose own were changed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.compat.values import functionalization, torch_private

aten = torch.ops.aten

_OPS = (
    aten.squeeze_.default,
    aten.squeeze_.dim,
    aten.squeeze_.dims,
    aten.t_.default,
    aten.transpose_.default,
    aten.unsqueeze_.default,
)


# What autograd has as the whole of some memory of which a part's dimensions were changed in place.
_wholes: list[weakref.ref[torch.Tensor]] = []


def register_renamed(library: torch.library.Library, slow: Callable[..., Any]) -> None:
    """Register the kernels; `slow(op, args, kwargs)` is the way that PyTorch has for `op`."""
    for op in _OPS:
        library.impl(op.name().removeprefix("aten::"), renaming(op, slow))


def renaming(op: Any, slow: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """The kernel of `op`, which changes dimensions in place."""

    def kernel(tensor: torch.Tensor, *args: Any) -> torch.Tensor:
        shared = torch_private.is_functional(tensor) and _shared(op, tensor)
        geometry = tensor.shape, tensor.stride()
        slow(op, (tensor, *args), {})
        if shared and (tensor.shape, tensor.stride()) != geometry:
            _remember(tensor)
        return tensor

    return kernel


def refuse_write(op: Any, targets: Iterable[torch.Tensor], args: Iterable[Any] = ()) -> None:
    """Raise if a write to `targets` would make gradients of what shares their memory wrong.

    args: the other arguments of `op`, lists too.

    Raises:
        RuntimeError: gradients are recorded, and dimensions of such a tensor were changed in place.
    """
    wholes = [whole for each in _wholes if (whole := each()) is not None]
    if not wholes:
        return
    given = pytree.tree_leaves(tuple(args)) if torch.is_grad_enabled() else ()
    recorded = any(isinstance(each, torch.Tensor) and each.requires_grad for each in given)
    wholes = [whole for whole in wholes if recorded or whole.requires_grad]
    if any(torch_private.is_alias(a, b) for a in targets for b in wholes):
        raise RuntimeError(
            f"{_name(op)}: what this writes to on an xla device shares memory with a tensor whose "
            "dimensions were changed in place (by t_, squeeze_ or the like), and whose gradients "
            "would be wrong afterwards; use t, squeeze or the like, which make a new view"
        )


def _shared(op: Any, tensor: torch.Tensor) -> bool:
    """Whether `tensor` shares its memory with others that autograd knows.

    Raises:
        RuntimeError: gradients are recorded, and would be wrong with other dimensions.
    """
    refuse_write(op, [tensor])
    if tensor._is_view():
        return True
    if not functionalization.has_views(tensor):
        return False
    if torch.is_grad_enabled() and tensor.grad_fn is not None:
        raise RuntimeError(
            f"{_name(op)}: there are views of this tensor on an xla device, whose gradients would "
            f"be wrong afterwards; use {_name(op).rstrip('_')}, which makes a new view of it"
        )
    return True


def _remember(tensor: torch.Tensor) -> None:
    base = tensor._base if tensor._is_view() else None
    whole = tensor if base is None else base
    known = ((each, each()) for each in _wholes)
    _wholes[:] = [each for each, other in known if other is not None and other is not whole]
    _wholes.append(weakref.ref(whole))


def _name(op: Any) -> str:
    return op._schema.name.removeprefix("aten::")
