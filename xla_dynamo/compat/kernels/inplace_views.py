"""transpose_(), squeeze_(), unsqueeze_() on a base that has views, or on a view.

After a write, autograd regenerates the gradients of views: on most devices from their strides, on
xla by replaying the recorded view ops. After an in-place op that changes dimensions the replay
would select the wrong elements, so such a write raises an error where gradients are recorded.

fill_diagonal_, as_strided_, resize_ and polygamma_ are here too. PyTorch's kernels of the first two
use a tensor's storage offset, which on the device is 0 for every view; resize_ would show memory
around a view, which it does not have; polygamma_ has no kernel that functionalization gets right.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.compat.values import functionalization, torch_private

from .as_strided import spans_base
from .redispatch import redispatch

aten = torch.ops.aten

_OPS = (
    *(aten.squeeze_.default, aten.squeeze_.dim, aten.squeeze_.dims, aten.unsqueeze_.default),
    *(aten.t_.default, aten.transpose_.default),
)
# In-place ops of which no other kernels are registered.
REPLACED = frozenset({"as_strided_", "fill_diagonal_", "polygamma_", "resize_"})

# Bases whose own dimensions, or those of one of whose views, were changed in place.
_bases: list[weakref.ref[torch.Tensor]] = []


def register_inplace_views(library: torch.library.Library) -> None:
    """Register the kernels for dispatch key AutogradXLA."""
    for op in _OPS:
        library.impl(op.name().removeprefix("aten::"), _dimensions_kernel(op))
    library.impl("as_strided_", _as_strided)
    library.impl("fill_diagonal_", _fill_diagonal)
    library.impl("polygamma_", _polygamma)
    library.impl("resize_", _resize)


def _dimensions_kernel(op: Any) -> Callable[..., torch.Tensor]:
    """The kernel of `op`, which changes dimensions in place."""

    def kernel(tensor: torch.Tensor, *args: Any) -> torch.Tensor:
        shared = torch_private.is_functional(tensor) and _shared(op, tensor)
        geometry = tensor.shape, tensor.stride()
        redispatch(op, (tensor, *args), {})
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
    bases = [base for each in _bases if (base := each()) is not None]
    if not bases:
        return
    given = pytree.tree_leaves(tuple(args)) if torch.is_grad_enabled() else ()
    recorded = any(isinstance(each, torch.Tensor) and each.requires_grad for each in given)
    bases = [base for base in bases if recorded or base.requires_grad]
    if any(torch_private.is_alias(a, b) for a in targets for b in bases):
        raise RuntimeError(
            f"{_name(op)}: this tensor on an xla device shares memory with a tensor whose "
            "dimensions were changed in place (by t_, squeeze_ or the like), and whose gradients "
            "would be wrong after the write; use t, squeeze or the like, which make a new view"
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
    base = tensor if base is None else base
    known = ((each, each()) for each in _bases)
    _bases[:] = [each for each, other in known if other is not None and other is not base]
    _bases.append(weakref.ref(base))


def _name(op: Any) -> str:
    return op._schema.name.removeprefix("aten::")


def _as_strided(
    tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> torch.Tensor:
    if torch_private.is_functional(tensor) and not spans_base(tensor):
        raise RuntimeError(
            "as_strided_: where a part of a tensor on an xla device begins in memory is "
            "unknown; use as_strided, which makes a new view of it"
        )
    return _dimensions_kernel(aten.as_strided_.default)(tensor, size, stride, offset)


def _resize(
    tensor: torch.Tensor, size: Sequence[int], *, memory_format: Any = None
) -> torch.Tensor:
    same = tuple(size) == tuple(tensor.shape) and memory_format is None
    if same and not tensor.requires_grad:
        return tensor
    part = torch_private.is_functional(tensor) and not torch_private.is_base(tensor)
    if part and (not tensor.is_contiguous() or math.prod(size) > tensor.numel()):
        raise RuntimeError(
            "resize_: a part of a tensor on an xla device has no memory around it; clone() it "
            "first, or resize the whole tensor"
        )
    kwargs = {} if memory_format is None else {"memory_format": memory_format}
    return redispatch(aten.resize_.default, (tensor, size), kwargs)


def _polygamma(tensor: torch.Tensor, n: int) -> torch.Tensor:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        torch.empty(1, dtype=tensor.dtype, device="cpu").polygamma_(n)  # raises eager's error
    return tensor.copy_(torch.polygamma(n, tensor))


def _fill_diagonal(tensor: torch.Tensor, value: complex, wrap: bool = False) -> torch.Tensor:
    """By a view of the diagonal, or by a mask."""
    rows, *others = tensor.shape or (1,)
    torch.empty(tensor.shape, device="meta").fill_diagonal_(0)  # raises eager's errors
    if len(others) == 1 and not (wrap and rows > others[0]):
        tensor.diagonal().fill_(value)
        return tensor
    indices = [torch.arange(n, device=tensor.device) for n in tensor.shape]
    if len(others) == 1:
        indices[0] = indices[0] % (others[0] + 1)  # one row is left out between two diagonals
    first, *rest = torch.meshgrid(*indices, indexing="ij")
    mask = functools.reduce(torch.logical_and, [first == other for other in rest])
    return tensor.masked_fill_(mask, value)
