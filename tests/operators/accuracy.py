"""Rounding told from mistakes: eager's own distance from a float64 answer is the measure.

Two float32 programs that add the same numbers in two orders differ by rounding, at times by more
than torch.testing's bounds. The same operator in float64 says which of them is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

_WIDER = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}
# torch.testing.assert_close's: dtype -> (rtol, atol)
_BOUNDS = {
    torch.float32: (1.3e-6, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
}
# The worst errors of two equally accurate programs differ by chance.
_LUCK = 4.0


def widened(tree: Any) -> Any:
    """Arguments with float64 (complex128) tensors and dtypes in place of narrower ones."""

    def widen(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dtype in _WIDER:
            return leaf.detach().to(_WIDER[leaf.dtype]).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.dtype):
            return _WIDER.get(leaf, leaf)
        return leaf

    return pytree.tree_map(widen, tree)


def is_rounding(got: Any, want: Any, truth: Any) -> bool:
    """Whether `got` differs from eager's `want` by rounding only.

    Every float tensor of `got` must lie within the default bounds of the float64 `truth`, or, at
    its worst element and in units of those bounds, within `_LUCK` times eager's own distance.
    """
    gots, wants, truths = map(pytree.tree_leaves, (got, want, truth))
    if not len(gots) == len(wants) == len(truths):
        return False
    return all(map(_leaf_is_rounding, gots, wants, truths))


def _leaf_is_rounding(got: Any, want: Any, truth: Any) -> bool:
    if not isinstance(want, torch.Tensor):
        return bool(got == want) or got is want
    if got is None or got.dtype != want.dtype or got.shape != want.shape:
        return False
    if want.dtype not in _BOUNDS or want.layout is not torch.strided:
        return _equal(got, want)
    if not isinstance(truth, torch.Tensor) or truth.shape != want.shape:
        return False
    return _off(got, truth) <= max(1.0, _LUCK * _off(want, truth))


def _equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    try:
        torch.testing.assert_close(got, want, equal_nan=True)
    except AssertionError:
        return False
    return True


def _off(values: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest distance from `truth` in units of the default bounds of `values`' dtype."""
    if not values.numel():
        return 0.0
    rtol, atol = _BOUNDS[values.dtype]
    # What is beyond the narrow dtype's range is infinite in it.
    narrow = truth.to(values.dtype).to(truth.dtype)
    wide = values.to(truth.dtype)
    same = (wide == narrow) | (wide.isnan() & narrow.isnan())
    distance = (wide - truth).abs() / (atol + rtol * truth.abs())
    distance = torch.where(same, 0.0, distance).nan_to_num(nan=torch.inf)
    return distance.max().item()


def sequence_is_rounding(got: Sequence[Any], want: Sequence[Any], truth: Sequence[Any]) -> bool:
    """`is_rounding` of gradients, where None means zeros."""
    for mine, theirs, exact in zip(got, want, truth, strict=True):
        present = next((t for t in (theirs, mine, exact) if t is not None), None)
        if present is None:
            continue
        filled = [torch.zeros_like(present) if t is None else t for t in (mine, theirs, exact)]
        if not is_rounding(*filled):
            return False
    return True
