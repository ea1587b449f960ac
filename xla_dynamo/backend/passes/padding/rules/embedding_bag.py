"""Sums of rows of a table, bag by bag: what is padding is in a bag, or a row, that is cut off."""

from __future__ import annotations

import operator
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.layouts import plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder, dims_of
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused, is_symbolic

from .products import alike

aten = torch.ops.aten
_MAXIMUM = 2


@pads(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    p: Padder,
    weight: Padded,
    indices: Padded,
    offsets: Padded,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    weights: Padded | None,
    with_last: bool,
    padding: int,
) -> Any:
    """One more bag begins where the indices end."""
    if len(indices.dims) != 1 or with_last or mode == _MAXIMUM or weight.padded_in([0, 1]):
        raise Refused("bags of this kind")
    indices = p.masked(p.plainly(indices), [0], 0)
    if weights is not None:
        indices, weights = alike(p, indices, p.masked(p.plainly(weights), [0], 0), 0, 0)
    starts = _with_end(p, p.plainly(offsets), indices)
    made = p.again(weight, indices, starts, by_frequency, mode, sparse, weights, with_last, padding)
    results = []
    for i, out in enumerate(p.outs()):
        each = p.emit(operator.getitem, made, i)
        for d, size in enumerate(out):
            if each.meta["val"].shape[d] > p.padded(size):
                each = p.emit(aten.slice.Tensor, each, d, 0, p.padded(size))
        results.append(p.give(each, dims_of(out)))
    return tuple(results)


def _with_end(p: Padder, offsets: Padded, indices: Padded) -> Any:
    """The offsets, and behind them how many indices there are."""
    count, device = offsets.value.shape[0], offsets.value.device
    longer = p.emit(aten.constant_pad_nd.default, offsets, [0, 1], 0)
    number = offsets.dims[0].size
    op = aten.lt.Tensor if is_symbolic(number) else aten.lt.Scalar
    given = p.emit(op, p.positions(count + 1, device), p.runtime(number))
    end = p.runtime(indices.dims[0].size)
    if not is_symbolic(indices.dims[0].size):
        end = p.emit(aten.scalar_tensor.default, end, dtype=torch.int64, device=device)
    end = p.emit(aten._to_copy.default, end, dtype=offsets.value.dtype)
    return p.emit(aten.where.self, given, longer, end)


@pads(aten._embedding_bag_backward.default)
def backward(
    p: Padder,
    grad: Padded,
    indices: Padded,
    offsets: Padded,
    bags: Padded,
    sizes: Padded,
    maxima: Padded,
    rows: Any,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    weights: Padded | None,
    padding: int,
) -> Padded:
    """Bags that are padding begin where the indices end; those are of a row behind the others."""
    if mode == _MAXIMUM or is_symbolic(rows) or sparse:
        raise Refused("bags of this kind")
    indices, starts = p.plainly(indices), p.plainly(offsets)
    if starts.padded_in([0]):
        wide = _with_end(p, starts, indices)
        starts = p.give(p.emit(aten.slice.Tensor, wide, 0, 0, starts.value.shape[0]), starts.dims)
    if weights is not None:
        indices, weights = alike(p, indices, p.masked(p.plainly(weights), [0], 0), 0, 0)
    grad, sizes = p.masked(p.plainly(grad), [0], 0), p.masked(p.plainly(sizes), [0], 1)
    index, more = p.masked(indices, [0], rows), rows + indices.padded_in([0])
    others = (by_frequency, mode, sparse, weights, padding)
    made = p.again(grad, index, starts, bags, sizes, maxima, more, *others)
    if more != rows:
        made = p.emit(aten.slice.Tensor, made, 0, 0, rows)
    return p.give(made, [plain(rows), grad.dims[1]])


@pads(aten._embedding_bag_dense_backward.default)
def dense_backward(
    p: Padder,
    grad: Padded,
    indices: Padded,
    bags: Padded,
    sizes: Padded,
    maxima: Padded,
    rows: Any,
    by_frequency: bool,
    mode: int,
    weights: Padded | None,
    padding: int,
) -> Padded:
    """Indices in the padding are of a row behind the others."""
    if mode == _MAXIMUM or is_symbolic(rows):
        raise Refused("bags of this kind")
    indices, bags = alike(p, p.plainly(indices), p.plainly(bags), 0, 0)
    if weights is not None:
        indices, weights = alike(p, indices, p.masked(p.plainly(weights), [0], 0), 0, 0)
    grad, sizes = p.masked(p.plainly(grad), [0], 0), p.masked(p.plainly(sizes), [0], 1)
    index, bag = p.masked(indices, [0], rows), p.masked(bags, [0], 0)
    more = rows + indices.padded_in([0])
    made = p.again(grad, index, bag, sizes, maxima, more, by_frequency, mode, weights, padding)
    if more != rows:
        made = p.emit(aten.slice.Tensor, made, 0, 0, rows)
    return p.give(made, [plain(rows), grad.dims[1]])


@pads(aten._embedding_bag_per_sample_weights_backward.default)
def weights_backward(
    p: Padder,
    grad: Padded,
    weight: Padded,
    indices: Padded,
    offsets: Padded,
    bags: Padded,
    mode: int,
    padding: int = -1,
) -> Padded:
    """One number an index."""
    indices, bags = alike(p, p.plainly(indices), p.plainly(bags), 0, 0)
    starts = p.masked(p.plainly(offsets), [0], 0)
    index, bag = p.masked(indices, [0], 0), p.masked(bags, [0], 0)
    made = p.again(p.plainly(grad), weight, index, starts, bag, mode, padding)
    return p.give(made, indices.dims)
