"""A recorded op -> the op, or the function, that stands for it in a window's graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from xla_dynamo.backend.ops.barriers import rounded_to
from xla_dynamo.compat.values import scalar_inputs

aten = torch.ops.aten
_HALVES = frozenset({torch.bfloat16, torch.float16})
_forms: dict[Any, Callable[..., Any]] = {}
_plain: dict[Any, Any] = {}


def scalar_form(func: Any, args: Any, kwargs: Any) -> Callable[..., Any] | None:
    """`func` as a function of 0-d tensors, if one of its numbers is a node."""
    positions = scalar_inputs.SCALARS.get(func, ())
    for position in positions:
        value = (
            kwargs.get(position)
            if isinstance(position, str)
            else args[position]
            if position < len(args)
            else None
        )
        schema = func._schema.arguments
        number = isinstance(position, str) or not isinstance(
            schema[position].type, torch.TensorType
        )
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
        if x.dtype in _HALVES:
            return x.float()
        kept = func in scalar_inputs.UNROUNDED or x.dim() or x.is_complex() or x.dtype is torch.bool
        return x if kept else rounded_to(x, half)

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        halves = [
            x.dtype
            for x in leaves
            if isinstance(x, torch.Tensor) and x.dtype in _HALVES and x.dim()
        ]
        if not halves:
            return form(*args, **kwargs)
        wide = [widened(x, halves[0]) for x in leaves]
        args, kwargs = pytree.tree_unflatten(wide, spec)
        result = form(*args, **kwargs)
        return result.to(halves[0]) if result.dtype is torch.float32 else result

    return run


def without_copy(func: Any) -> Any:
    """view_copy -> view: in a functional graph they are the same."""
    found = _plain.get(func)
    if found is None:
        found = func
        name = func._schema.name.split("::")[1]
        if torch.Tag.view_copy in func.tags and name.endswith("_copy"):
            packet = getattr(aten, name.removesuffix("_copy"), None)
            found = getattr(packet, func._overloadname, func) if packet else func
        _plain[func] = found
    return found
