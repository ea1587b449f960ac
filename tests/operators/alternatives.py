"""Operators whose answer is not one array: what their results must satisfy instead of equality.

`UNDEFINED` ones have arbitrary values: shapes, dtypes and strides are compared. `CHECKS` ones have
several valid answers (the sign of an eigenvector): the property that makes an answer valid is
checked, and what is unique is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .values import assert_same

UNDEFINED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)

# (sample, got, want) -> None, or AssertionError
Check = Callable[[Any, Any, Any], None]
CHECKS: dict[str, Check] = {}


def check(op: str, sample: Any, got: Any, want: Any) -> None:
    """Assert that `got` is an answer as valid as eager's `want`."""
    if op in UNDEFINED:
        _assert_same_form(got, want)
        return
    try:
        assert_same(got, want)
    except AssertionError:
        if op not in CHECKS:
            raise
        CHECKS[op](sample, got, want)


def _assert_same_form(got: Any, want: Any) -> None:
    gots, wants = pytree.tree_leaves(got), pytree.tree_leaves(want)
    assert len(gots) == len(wants), "the number of results differs"
    for mine, theirs in zip(gots, wants, strict=True):
        assert _form(mine) == _form(theirs), f"{_form(mine)}, eager has {_form(theirs)}"


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Shape, dtype, and the strides of dimensions that have any."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    strides = [stride for size, stride in pairs if size > 1] if tensor.numel() else []
    return tuple(tensor.shape), tensor.dtype, strides
