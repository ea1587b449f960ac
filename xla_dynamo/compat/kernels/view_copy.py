"""transpose_copy(), narrow_copy(), ... called by the user: the view, and a contiguous copy of it.

Functionalization records a view as the same op on the wrapped tensor, where the result keeps the
strides of the view; a call of the user's must give a contiguous tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.compat.recording.op_forms import without_copy
from xla_dynamo.compat.values.torch_private import count_modes, is_functional
from xla_dynamo.compat.values.values import Leaf, leaf

from .redispatch import redispatch

aten = torch.ops.aten

_ALIASES = (aten.detach_copy.default, aten.alias_copy.default)


def register_view_copy(library: torch.library.Library) -> None:
    """Register the kernels for dispatch key AutogradXLA."""
    for name in dir(aten):
        if name.startswith("_") or not name.endswith("_copy"):
            continue
        for overload in getattr(aten, name).overloads():
            op = getattr(getattr(aten, name), overload)
            view = without_copy(op)
            if view is not op:
                kernel = _copying(op, view)
                kernel = _aliasing(kernel) if op in _ALIASES else kernel
                library.impl(op.name().removeprefix("aten::"), kernel)


def _copying(op: Any, view: Any) -> Callable[..., Any]:
    def kernel(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not is_functional(tensor):
            return redispatch(op, (tensor, *args), kwargs)
        return pytree.tree_map_only(torch.Tensor, _contiguous, view(tensor, *args, **kwargs))

    return kernel


def _aliasing(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """`kernel`, of an op whose result is its argument: another leaf of the value.

    After each write to a detached tensor, as optimizers' momenta and `.data` are, functionalization
    asks for one. Who watches every op, by a mode, is told of it as of any.
    """

    def alias(tensor: torch.Tensor) -> Any:
        if type(tensor) is Leaf and not tensor.requires_grad and not count_modes():
            return leaf(tensor.value)
        return kernel(tensor)

    return alias


def _contiguous(part: torch.Tensor) -> torch.Tensor:
    return part.clone(memory_format=torch.contiguous_format)
