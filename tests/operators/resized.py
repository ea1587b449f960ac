"""Samples at other sizes: what one program for a bucket of sizes is called with.

A sample's sizes, in ascending order, become others in the same order. Many operators refuse some
of them (a view to a given shape); eager says which.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree


def sizes_of(sample: Any) -> list[int]:
    """The sizes of a sample's dimensions that Dynamo can make symbols, in ascending order."""
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return sorted(
        {
            n
            for x in leaves
            if isinstance(x, torch.Tensor) and x.layout is torch.strided
            for n in x.shape
            if n > 1
        }
    )


def buckets_of(sizes: Sequence[int]) -> list[int]:
    """Buckets P of which each size is P - 1, and one that is larger than all."""
    return [*(n + 1 for n in sizes), 2 * max(sizes, default=2) + 5]


def others(sample: Any) -> Iterator[Any]:
    """The sample with the sizes 2, 3, P and P + 1 in place of P - 1."""
    sizes = sizes_of(sample)
    if not sizes:
        return
    for least in (2, 3):
        yield resized(sample, {n: least + k for k, n in enumerate(sizes)})
    for more in (1, 2):
        yield resized(sample, {n: n + more for n in sizes})


def resized(sample: Any, change: Mapping[int, int]) -> Any:
    """The sample with other sizes: elements are left out, or come again, a bit smaller."""
    shrunk = min(change.values()) if min(change.values()) < min(change) else None
    packed = (sample.input, tuple(sample.args), dict(sample.kwargs))
    made = copy.copy(sample)
    made.input, made.args, made.kwargs = pytree.tree_map_only(
        torch.Tensor, lambda x: _resized(x, change, shrunk), packed
    )
    return made


def _resized(x: torch.Tensor, change: Mapping[int, int], shrunk: int | None) -> torch.Tensor:
    if x.layout is not torch.strided:
        return x
    made = x.detach().resolve_conj().resolve_neg()
    for d, n in enumerate(x.shape):
        if n in change:
            made = made.index_select(d, torch.arange(change[n]) % n)
            if made.is_floating_point() or made.is_complex():  # no element is there twice
                made.narrow(d, min(n, change[n]), max(change[n] - n, 0)).mul_(0.96875)
    is_index = not made.is_floating_point() and not made.is_complex() and made.dtype != torch.bool
    if shrunk is not None and is_index:
        made = made.remainder(shrunk)
    return made.clone().requires_grad_(x.requires_grad)
