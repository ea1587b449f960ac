"""Parts of a dimension that begin where a number on the device says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Size, is_symbolic

from .slices import placed, taken

aten = torch.ops.aten


def _first(p: Padder, start: Padded, size: Size) -> Node:
    """Where a slice begins, from the front."""
    op = aten.add.Tensor if is_symbolic(size) else aten.add.Scalar
    from_end = p.emit(op, start, p.runtime(size))
    return p.emit(aten.where.self, p.emit(aten.lt.Scalar, start, 0), from_end, start)


@pads("xla_dynamo.dynamic_slice.default")
def dynamic_slice(p: Padder, x: Padded, dim: int, start: Padded, length: Size) -> Padded:
    """`length` elements."""
    d = dim % len(x.dims)
    x = p.plainly(x, [d])
    return taken(p, x, d, _first(p, start, x.dims[d].size), length, 1)


@pads("xla_dynamo.dynamic_slice_backward.default")
def dynamic_slice_backward(
    p: Padder, grad: Padded, sizes: Sequence[Size], dim: int, start: Padded
) -> Padded:
    """Zeros, and the gradient where the slice was taken."""
    d = dim % len(sizes)
    return placed(p, None, grad, d, sizes[d], _first(p, start, sizes[d]), 1)


@pads("xla_dynamo.dynamic_update.default")
def dynamic_update(p: Padder, x: Padded, part: Padded, dim: int, start: Padded) -> Padded:
    """A part in the place of what was there."""
    d = dim % len(x.dims)
    size: Any = x.dims[d].size
    return placed(p, p.plainly(x, [d]), part, d, size, _first(p, start, size), 1)
