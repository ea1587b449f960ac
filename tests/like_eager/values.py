"""Whether two trees of values are the same in all that a user can see of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

_CPU = torch.device("cpu")


def assert_same(
    actual: Any,
    expected: Any,
    *,
    device: torch.device = _CPU,
    layout: bool = False,
    **tolerances: Any,
) -> None:
    """`actual`, with its tensors on `device`, is the same tree as `expected` on the CPU.

    With `layout`, its tensors have the same strides and share memory with each other alike.
    """
    flat, spec = pytree.tree_flatten(actual)
    flat_, spec_ = pytree.tree_flatten(expected)
    assert spec == spec_
    for ours, theirs in zip(flat, flat_, strict=True):
        assert type(ours) is type(theirs)
        if not isinstance(ours, Tensor):
            assert ours == theirs
            continue
        assert ours.device == device
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert not layout or _strides(ours) == _strides(theirs)
        assert ours.requires_grad == theirs.requires_grad
        torch.testing.assert_close(
            ours.detach().cpu(), theirs.detach(), equal_nan=True, **tolerances
        )
    assert not layout or aliases(flat) == aliases(flat_)


def aliases(leaves: list[Any]) -> list[tuple[int, int]]:
    """The pairs of tensors that share a storage, by position; (i, i) where objects are one."""
    tensors = [(i, x) for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    return [
        (i, i) if x is y else (i, j)
        for i, x in tensors
        for j, y in tensors
        if i < j and x.numel() and _storage(x) == _storage(y)
    ]


def _strides(tensor: Tensor) -> list[int]:
    """The strides that mean something: those between elements."""
    sizes = zip(tensor.stride(), tensor.shape, strict=True)
    return [stride for stride, size in sizes if size > 1 and tensor.numel()]


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
