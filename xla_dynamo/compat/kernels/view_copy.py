"""transpose_copy(), narrow_copy(), ... of the user -> the view, and a contiguous copy of it.

Functionalization records a view as the same op, of a tensor that it wraps; that has the strides of
a view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.compat.recording.op_forms import without_copy
from xla_dynamo.compat.values.torch_private import is_functional

aten = torch.ops.aten


def register_view_copies(library: torch.library.Library, slow: Callable[..., Any]) -> None:
    """Register the kernels; `slow(op, args, kwargs)` is the way that PyTorch has for `op`."""
    for name in dir(aten):
        if name.startswith("_") or not name.endswith("_copy"):
            continue
        for overload in getattr(aten, name).overloads():
            op = getattr(getattr(aten, name), overload)
            view = without_copy(op)
            if view is not op:
                library.impl(op.name().removeprefix("aten::"), _copying(op, view, slow))


def _copying(op: Any, view: Any, slow: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not is_functional(tensor):
            return slow(op, (tensor, *args), kwargs)
        return pytree.tree_map_only(torch.Tensor, _contiguous, view(tensor, *args, **kwargs))

    return kernel


def _contiguous(part: torch.Tensor) -> torch.Tensor:
    return part.clone(memory_format=torch.contiguous_format)
