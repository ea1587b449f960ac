"""Rounding told from mistakes: by eager's own distance from a float64 answer, or its conditioning.

Two float32 programs that add the same numbers in two orders differ by rounding, at times by more
than torch.testing's bounds. The same operator in float64 says which of them is off. Eager may be
close by luck; what a unit in the last place of every input changes is then the measure (a backward
error, Higham, "Accuracy and Stability of Numerical Algorithms", 1.5), where the operator is smooth.
"""

from __future__ import annotations

import math
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
# Units in the last place of the inputs, by which `near` answers are given to `is_rounding`.
NOISES = (1.0, 1 / 16)


def widened(tree: Any, noise: float = 0.0) -> Any:
    """Arguments with float64 (complex128) copies and dtypes in place of narrower ones.

    Their numbers are changed by at most `noise` units in the last place of the narrower dtype.
    """
    generator = torch.Generator().manual_seed(0)

    def widen(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dtype in _WIDER:
            wide = leaf.to(_WIDER[leaf.dtype])  # gradients are those of `leaf`
            if noise:
                shifts = torch.rand(leaf.shape, generator=generator, dtype=torch.float64) * 2 - 1
                wide = wide * (1 + shifts * (noise * torch.finfo(leaf.dtype).eps))
            return wide
        if isinstance(leaf, torch.dtype):
            return _WIDER.get(leaf, leaf)
        return leaf

    return pytree.tree_map(widen, tree)


def is_rounding(got: Any, want: Any, truth: Any, near: Sequence[Any] = ()) -> bool:
    """Whether `got` differs from eager's `want` by rounding only.

    Every float tensor of `got` must lie within the default bounds of the float64 `truth`, or, at
    its worst element and in units of those bounds, within `_LUCK` times eager's own distance, or
    that of the answer to inputs with noise, if `near` has the answers for each of `NOISES`.
    """
    gots, wants, truths, *nears = map(pytree.tree_leaves, (got, want, truth, *near))
    if len({len(leaves) for leaves in (gots, wants, truths, *nears)}) != 1:
        return False
    return all(map(_leaf_is_rounding, gots, wants, truths, *nears))


def _leaf_is_rounding(got: Any, want: Any, truth: Any, *near: Any) -> bool:
    if not isinstance(want, torch.Tensor):
        return bool(got == want) or got is want
    if got is None or got.dtype != want.dtype or got.shape != want.shape:
        return False
    if want.dtype not in _BOUNDS or want.layout is not torch.strided:
        return _equal(got, want)
    if not isinstance(truth, torch.Tensor) or truth.shape != want.shape:
        return False
    measures = [_off(want, truth), *([_response(near, truth, want.dtype)] if near else [])]
    return _off(got, truth) <= max(1.0, _LUCK * max(measures))


def _response(near: Sequence[torch.Tensor], truth: torch.Tensor, dtype: torch.dtype) -> float:
    """How far noise carries an answer; 0 where that is not in proportion, as beside a step."""
    if any(answer.shape != truth.shape for answer in near):
        return 0.0
    far, close = (_off(answer, truth, dtype) for answer in near)
    proportion = NOISES[0] / NOISES[1]
    is_smooth = proportion / 2 * close <= far <= proportion * 2 * close
    return far if is_smooth and math.isfinite(far) else 0.0


def _equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    try:
        torch.testing.assert_close(got, want, equal_nan=True)
    except AssertionError:
        return False
    return True


def _off(values: torch.Tensor, truth: torch.Tensor, dtype: torch.dtype | None = None) -> float:
    """The largest distance from `truth` in units of the default bounds of a dtype, or `values`'."""
    if not values.numel():
        return 0.0
    dtype = dtype or values.dtype
    rtol, atol = _BOUNDS[dtype]
    # What is beyond the narrow dtype's range is infinite in it.
    truth = truth.to(_WIDER[dtype])
    narrow = truth.to(dtype).to(truth.dtype)
    wide = values.to(truth.dtype)
    same = (wide == narrow) | (wide.isnan() & narrow.isnan())
    distance = (wide - truth).abs() / (atol + rtol * truth.abs())
    distance = torch.where(same, 0.0, distance).nan_to_num(nan=torch.inf)
    return distance.max().item()


def sequence_is_rounding(
    got: Sequence[Any], want: Sequence[Any], truth: Sequence[Any], near: Sequence[Any] = ()
) -> bool:
    """`is_rounding` of gradients, where None means zeros."""
    for mine, theirs, exact, *close in zip(got, want, truth, *near, strict=True):
        present = next((t for t in (theirs, mine, exact) if t is not None), None)
        if present is None:
            continue
        filled = [
            torch.zeros_like(present) if t is None else t for t in (mine, theirs, exact, *close)
        ]
        if not is_rounding(*filled[:3], filled[3:]):
            return False
    return True
