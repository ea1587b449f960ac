"""Writes that bypass autograd and functionalization, for tensors that are not differentiated.

The functional op is recorded on the leaves, and the leaves of the tensors that are written to get
its results as their values. In-place ops and out= share this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xla_dynamo.compat.recording import shape_inference
from xla_dynamo.compat.values import torch_private
from xla_dynamo.compat.values.op_table import Op
from xla_dynamo.compat.values.values import Leaf, Meta, Value, restrided

from . import inplace_views
from .overlapping_writes import loses_writes, share_memory


class _Unfit(Exception):
    """An argument that cannot be handled without autograd and functionalization."""


def update(
    op: Op,
    targets: Sequence[torch.Tensor],
    args: Any,
    kwargs: Any,
    fits: Callable[[Meta, Meta], bool],
) -> bool:
    """Record an op whose results become the values of `targets`; False: it must go the usual way.

    fits: whether a result of the first meta may be the value of a tensor of the second.
    """
    grad = torch.is_grad_enabled()
    try:
        leaves = [_leaf_of(target, grad) for target in targets]
        listed = targets is args[0]
        written, known = (targets, leaves) if listed else (targets[0], leaves[0])
        given = [known if each is written else _argument(each, grad) for each in args]
        named = {name: _argument(value, grad) for name, value in kwargs.items()} if kwargs else {}
    except _Unfit:
        return False
    values = _compute(op, targets, leaves, given, named)
    if values is None:
        return False
    for value, leaf in zip(values, leaves, strict=True):
        own = leaf.value.meta
        if value.meta is not own and not fits(value.meta, own):
            return False
    for target, leaf, value in zip(targets, leaves, values, strict=True):
        leaf.value = restrided(value, leaf.value.meta)
        torch_private.commit(target)  # views of the same memory follow
        torch_private.sync(target)
    torch_private.mark_written(targets)
    return True


def _leaf_of(tensor: Any, grad: bool) -> Leaf:
    """The leaf of a tensor of the device.

    Raises:
        _Unfit: it is none, or `grad` and it is differentiated.
    """
    if (grad and tensor.requires_grad) or not torch_private.is_functional(tensor):
        raise _Unfit
    torch_private.sync(tensor)
    leaf = torch_private.unwrapped(tensor)
    if type(leaf) is not Leaf:
        raise _Unfit
    return leaf


def _argument(given: Any, grad: bool) -> Any:
    """An argument of an op, with leaves for tensors of the device.

    Raises:
        _Unfit: as `_leaf_of`; a tensor of another device has more than one number.
    """
    if isinstance(given, torch.Tensor):
        if not torch_private.is_functional(given):
            if given.dim() == 0 and type(given) is torch.Tensor and given.device.type == "cpu":
                return given
            raise _Unfit
        return _leaf_of(given, grad)
    if type(given) is list:
        return [_argument(item, grad) for item in given]
    return given


def _compute(
    op: Op, targets: Sequence[torch.Tensor], leaves: list[Leaf], args: Any, kwargs: Any
) -> Sequence[Value] | None:
    """The results of an op that go to `targets`; None if they may not be stored directly."""
    if not leaves:
        return None
    inplace_views.refuse_write(op.func, targets)
    if not all(map(torch_private.is_base, targets)) and any(map(loses_writes, targets)):
        return None
    if len(leaves) > 1 and share_memory(targets):
        return None
    trace = leaves[0].value.home
    if any(leaf.value.home is not trace for leaf in leaves):  # an error: the usual way explains it
        return None
    made: Any = trace.record_values(op, args, kwargs)
    if made is shape_inference.EAGER:
        return None
    return [made] if type(made) is Value else made
