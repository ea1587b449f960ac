"""Writes that bypass autograd and functionalization, for tensors that are not differentiated.

The functional op is recorded on the leaves, and the leaves of the tensors that are written to get
its results as their values. In-place ops and out= share this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.compat.recording import shape_inference
from xla_dynamo.compat.values import torch_private
from xla_dynamo.compat.values.op_table import Op
from xla_dynamo.compat.values.values import Leaf, Value

from . import inplace_views
from .overlapping_writes import loses_writes, share_memory

_unfunctional = torch_private.unwrapped
_is_functional = torch_private.is_functional
_sync = torch_private.sync
_commit = torch_private.commit


class Unfit(Exception):
    """An argument that cannot be handled without autograd and functionalization."""


def leaf_of(tensor: Any, grad: bool) -> Leaf:
    """The leaf of a tensor of the device.

    Raises:
        Unfit: it is none, or `grad` and it is differentiated.
    """
    if (grad and tensor.requires_grad) or not _is_functional(tensor):
        raise Unfit
    _sync(tensor)
    leaf = _unfunctional(tensor)
    if type(leaf) is not Leaf:
        raise Unfit
    return leaf


def argument(given: Any, grad: bool) -> Any:
    """An argument of an op, with leaves for tensors of the device.

    Raises:
        Unfit: as `leaf_of`; a tensor of another device has more than one number.
    """
    if isinstance(given, torch.Tensor):
        if not _is_functional(given):
            if given.dim() == 0 and type(given) is torch.Tensor and given.device.type == "cpu":
                return given
            raise Unfit
        return leaf_of(given, grad)
    if type(given) is list:
        return [argument(item, grad) for item in given]
    return given


def compute(
    op: Op, targets: Sequence[torch.Tensor], leaves: list[Leaf], args: Any, kwargs: Any
) -> Sequence[Value] | None:
    """Record an op whose results go to `leaves`, those of `targets`; None if it may not be stored.

    args, kwargs: of `argument`.
    """
    if not leaves:
        return None
    inplace_views.refuse_write(op.func, targets)
    if not all(map(torch_private.is_base, targets)) and any(map(loses_writes, targets)):
        return None
    if len(leaves) > 1 and share_memory(targets):
        return None
    trace = leaves[0].value.home
    for leaf in leaves:  # every other mix of devices is an error that the usual way explains
        if leaf.value.home is not trace:
            return None
    made: Any = trace.record_values(op, args, kwargs)
    if made is shape_inference.EAGER:
        return None
    return [made] if type(made) is Value else made


def store(targets: Sequence[torch.Tensor], leaves: list[Leaf], values: Sequence[Value]) -> None:
    """Let tensors, whose leaves are given, have values of their shapes and dtypes."""
    for target, leaf, value in zip(targets, leaves, values, strict=True):
        own = leaf.value.meta
        leaf.value = value if value.meta is own else value.home.restride(value, own)
        _commit(target)  # views of the same memory follow
        _sync(target)
    torch_private.mark_written(targets)
