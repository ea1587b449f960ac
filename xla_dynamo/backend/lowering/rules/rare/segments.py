"""Reductions of consecutive segments, and their gradients: one scatter into the segments.

`data` and `lengths` (or `offsets`) share their leading dimensions; each row of `lengths` divides
the next dimension of `data` into segments. Segments of all rows have consecutive numbers, so that
one scatter does them all; elements in no segment are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import jax
import jax.numpy as jnp
import torch
from jax import Array

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import Unsupported, lower

aten = torch.ops.aten

_IDENTITY = {"sum": 0, "mean": 0, "prod": 1, "max": -jnp.inf, "min": jnp.inf}


@dataclass(frozen=True)
class _Segments:
    """`of`: the segment of each element; `lengths`; `count`: of segments in a row; `rows`."""

    of: Array
    lengths: Array
    count: int
    rows: int

    def reduce(self, data: Array, reduction: str, initial: float) -> Array:
        """Per segment, the reduction of [elements, inner] `data` that starts at `initial`."""
        into = jnp.full((self.rows * self.count, data.shape[1]), initial, data.dtype).at[self.of]
        scatter = {"max": into.max, "min": into.min, "prod": into.multiply}.get(reduction, into.add)
        return scatter(data, mode="drop")

    def spread(self, values: Array) -> Array:
        """For each element, the row of `values` of its segment; 0 if it is in none."""
        return values.at[self.of].get(mode="fill", fill_value=0)


@lower(aten.segment_reduce.default)
def segment_reduce(
    data: Array,
    reduce: str,
    *,
    lengths: Array | None = None,
    indices: Array | None = None,
    offsets: Array | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Array:
    segments, axis = _segments(data, lengths, offsets)
    start = _IDENTITY[reduce] if initial is None else initial
    reduced = segments.reduce(_elements(data, axis), reduce, start)
    if reduce == "mean":
        sizes = segments.lengths[:, None]
        empty = jnp.nan if initial is None else initial
        reduced = jnp.where(sizes > 0, reduced / jnp.maximum(sizes, 1), empty)
    return reduced.reshape(*data.shape[:axis], segments.count, *data.shape[axis + 1 :])


@lower(aten._segment_reduce_backward.default)
def segment_reduce_backward(
    grad: Array,
    output: Array,
    data: Array,
    reduce: str,
    *,
    lengths: Array | None = None,
    offsets: Array | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Array:
    segments, axis = _segments(data, lengths, offsets)
    values, reduced = _elements(data, axis), _elements(output, axis)
    per_segment = _elements(grad, axis)
    if reduce == "mean":
        per_segment = per_segment / jnp.maximum(segments.lengths, 1)[:, None]
    gradient = segments.spread(per_segment)
    if reduce == "prod":
        gradient *= _product_of_others(segments, values, reduced, initial)
    elif reduce in ("max", "min"):
        chosen = jnp.isnan(values) | (values == segments.spread(reduced))
        ties = segments.spread(segments.reduce(chosen.astype(values.dtype), "sum", 0))
        # Eager divides the gradient among ties only where it is positive.
        gradient = jnp.where(gradient > 0, gradient / jnp.maximum(ties, 1), gradient)
        gradient = jnp.where(chosen, gradient, 0)
    return gradient.reshape(data.shape)


def _product_of_others(
    segments: _Segments, values: Array, reduced: Array, initial: float | None
) -> Array:
    """For each element, the product of the others in its segment, without dividing by 0 or NaN."""
    zero, nan = values == 0, jnp.isnan(values)
    regular = jnp.where(zero | nan, 1, values)
    rest = segments.reduce(regular, "prod", 1 if initial is None else initial)
    zeros, nans = (
        segments.spread(segments.reduce(place.astype(values.dtype), "sum", 0)) - place
        for place in (zero, nan)
    )
    others = segments.spread(rest) * jnp.where(zeros > 0, 0, 1) * jnp.where(nans > 0, jnp.nan, 1)
    return jnp.where(zero | nan, others, segments.spread(reduced) / values)


def _segments(data: Array, lengths: Array | None, offsets: Array | None) -> tuple[_Segments, int]:
    """The segments, and the axis of `data` that they divide."""
    if lengths is None and offsets is None:
        raise Unsupported(
            "Neither the lengths nor the offsets of the segments are given.", "Pass one of them."
        )
    if offsets is None:
        assert lengths is not None
        ends = jnp.cumsum(lengths, -1)
        starts = ends - lengths
    else:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    axis, count = starts.ndim - 1, starts.shape[-1]
    rows, size = prod(data.shape[:axis]), data.shape[axis]
    starts, ends = (bound.reshape(rows, count) for bound in (starts, ends))
    place = jnp.arange(size)
    of = jax.vmap(lambda ends: jnp.searchsorted(ends, place, side="right"))(ends)
    begins = jnp.take_along_axis(starts, of, 1, mode="fill", fill_value=size)
    number = jnp.where(place >= begins, of + count * jnp.arange(rows)[:, None], rows * count)
    return _Segments(number.reshape(-1), (ends - starts).reshape(-1), count, rows), axis


def _elements(x: Array, axis: int) -> Array:
    """`x` as [elements, inner], in the accumulation dtype."""
    inner = prod(x.shape[axis + 1 :])
    return x.reshape(prod(x.shape[: axis + 1]), inner).astype(dtypes.accumulation(x.dtype))
