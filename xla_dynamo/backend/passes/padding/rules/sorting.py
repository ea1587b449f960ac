"""Sorts: the padding is what comes last. Sorts are stable: of equals, it is behind the elements."""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.backend.passes.padding.layouts import plain
from xla_dynamo.backend.passes.padding.padder import Fill, Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads

aten = torch.ops.aten


def _sorted(p: Padder, x: Padded, dim: int, descending: bool) -> Padded:
    fill: Fill = "lowest" if descending else "last"
    return p.masked(p.plainly(x, [dim]), [dim], fill) if x.dims else x


@pads(aten.sort.default)
def sort(p: Padder, x: Padded, dim: int = -1, descending: bool = False) -> Any:
    """Values and positions."""
    x = _sorted(p, x, dim, descending)
    return p.give_all(p.again(x, dim, descending), [x.dims, x.dims])


@pads(aten.sort.stable)
def stable_sort(p: Padder, x: Padded, stable: Any, dim: int = -1, descending: bool = False) -> Any:
    """The same."""
    x = _sorted(p, x, dim, descending)
    return p.give_all(p.again(x, stable, dim, descending), [x.dims, x.dims])


@pads(aten.topk.default)
def topk(p: Padder, x: Padded, k: Any, dim: int, largest: bool, is_sorted: bool) -> Any:
    """The first of a sort."""
    if not x.dims:
        return p.give_all(p.again(x, k, dim, largest, is_sorted), [[], []])
    x = _sorted(p, x, dim, largest)
    dims = list(x.dims)
    dims[dim] = plain(k)
    return p.give_all(p.again(x, p.padded(k), dim, largest, is_sorted), [dims, dims])
