"""The op, or the function, by which a recorded op enters a trace's FX graph.

An op with a number is a function of 0-d tensors, a view_copy op the view, a composite op a function
whose trace has its parts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from xla_dynamo.backend.decompositions.matmul_backward import PRODUCT_DECOMPOSITIONS
from xla_dynamo.backend.decompositions.selected import FORMS
from xla_dynamo.backend.ops import packed
from xla_dynamo.backend.ops.barriers import rounded_to
from xla_dynamo.compat.values import scalar_inputs

aten = torch.ops.aten
_REDUCED = frozenset({torch.bfloat16, torch.float16})
_forms: dict[Any, Callable[..., Any]] = {}


def _resize(x: torch.Tensor, size: Sequence[int], memory_format: Any = None) -> torch.Tensor:
    """The first elements of `x` in its order; what is beyond them is not specified: zeros."""
    flat = x.reshape(-1)
    missing = math.prod(size) - flat.numel()
    if missing > 0:
        return torch.constant_pad_nd(flat, (0, missing)).view(size)
    return flat[: flat.numel() + missing].view(size)


def _resize_as(x: torch.Tensor, other: torch.Tensor, memory_format: Any = None) -> torch.Tensor:
    return _resize(x, other.shape)


# Composite ops that are recorded as one op: see kernels.composites.
RECORDED_COMPOSITES = (aten.linear.default, aten.matmul.default)
# op -> the function whose trace, the ops that it is made of, replaces it in a trace's graph.
COMPOSITES: dict[Any, Callable[..., Any]] = {
    **{op: op for op in RECORDED_COMPOSITES},
    **PRODUCT_DECOMPOSITIONS,
    aten.resize.default: _resize,
    aten.resize_as.default: _resize_as,
    torch.ops.xla_dynamo.repad_rows.default: packed.padded_again,
}


def scalar_form(func: Any, args: Any, kwargs: Any) -> Callable[..., Any] | None:
    """`func` as a function of 0-d tensors, if one of its numbers is a node."""
    position, form = FORMS.get(func, (0, None))
    if form is not None:
        is_chosen = any(isinstance(x, Node) for x in pytree.tree_leaves(args[position]))
        return form if is_chosen else None
    given = dict(enumerate(args)) | kwargs
    tensors = [isinstance(argument.type, torch.TensorType) for argument in func._schema.arguments]
    for position in scalar_inputs.SCALARS.get(func, ()):
        value = given.get(position)
        number = isinstance(position, str) or not tensors[position]
        if isinstance(value, Node) and (number or value.target is aten.select.int):
            return _forms.setdefault(func, _in_op_precision(func, scalar_inputs.form(func)))
    return None


def _in_op_precision(func: Any, form: Callable[..., Any]) -> Callable[..., Any]:
    """Numbers enter an op on half-precision tensors at float32, where eager computes.

    Most ops of eager round the numbers to half precision first.
    """

    def widened(x: Any, half: torch.dtype) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if x.dtype in _REDUCED:
            return x.float()
        kept = func in scalar_inputs.UNROUNDED or x.dim() or x.is_complex() or x.dtype is torch.bool
        return x if kept else rounded_to(x, half)

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor) and x.dim()]
        reduced = [x.dtype for x in tensors if x.dtype in _REDUCED]
        if not reduced:
            return form(*args, **kwargs)
        wide = [widened(x, reduced[0]) for x in leaves]
        args, kwargs = pytree.tree_unflatten(wide, spec)
        result = form(*args, **kwargs)
        return result.to(reduced[0]) if result.dtype is torch.float32 else result

    return run


@functools.cache
def without_copy(func: Any) -> Any:
    """view_copy -> view: in a functional graph they are the same."""
    name = func._schema.name.split("::")[1]
    if torch.Tag.view_copy not in func.tags or not name.endswith("_copy"):
        return func
    return getattr(getattr(aten, name.removesuffix("_copy"), None), func._overloadname, func)
