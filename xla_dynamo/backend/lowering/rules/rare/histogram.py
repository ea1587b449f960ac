"""Histograms in one dimension or several, and their bin edges: a search and one scatter-add.

A bin includes its left edge, the last one both. Edges that are not given are those of linspace
between the least and the greatest value; as they are returned, values are searched among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from xla_dynamo.backend.lowering.registry import lower
from xla_dynamo.backend.lowering.rules.searching import searchsorted

aten = torch.ops.aten


@lower(aten.histogram.bin_ct)
def histogram_of_count(
    x: Array, bins: int = 100, *, range: Sequence[float] | None = None, **options: Any
) -> tuple[Array, Array]:
    (edges,) = bin_edges(x.reshape(-1, 1), [bins], range=range)
    return histogram(x, edges, **options)


@lower(aten.histogram.bins_tensor)
def histogram(x: Array, bins: Array, **options: Any) -> tuple[Array, Array]:
    return histogramdd(x.reshape(-1, 1), [bins], **options), bins


@lower(aten._histogramdd_bin_edges.default)
def bin_edges(
    x: Array, bins: Sequence[int], *, range: Sequence[float] | None = None, **_: Any
) -> list[Array]:
    points = x.reshape(-1, x.shape[-1])
    dtype = points.dtype
    if range is not None:
        bounds = jnp.asarray(range, np.float64).reshape(-1, 2)
    elif points.size:
        bounds = jnp.stack([points.min(0), points.max(0)], 1).astype(np.float64)
    else:
        bounds = jnp.tile(jnp.asarray([0.0, 1.0]), (points.shape[1], 1))
    low, high = bounds[:, 0], bounds[:, 1]
    flat = low == high
    low, high = jnp.where(flat, low - 0.5, low), jnp.where(flat, high + 0.5, high)
    return [_evenly(low[i].astype(dtype), high[i].astype(dtype), n) for i, n in enumerate(bins)]


def _evenly(low: Array, high: Array, bins: int) -> Array:
    """linspace, exact to the last bit, which decides on which side of an edge a value lies.

    Product and sum are rounded once, as by a fused multiply-add (in float64 perhaps twice).
    """
    step = ((high - low) / jnp.asarray(bins, low.dtype)).astype(np.float64)
    place = jnp.arange(bins + 1)
    up, down = low + step * place, high - step * (bins - place)
    return jnp.where(place < (bins + 1) // 2, up, down).astype(low.dtype)


@lower(aten._histogramdd_from_bin_cts.default)
def histogramdd_of_counts(
    x: Array, bins: Sequence[int], *, range: Sequence[float] | None = None, **options: Any
) -> Array:
    return histogramdd(x, bin_edges(x, bins, range=range), **options)


@lower(aten._histogramdd_from_bin_tensors.default)
def histogramdd(
    x: Array, bins: Sequence[Array], *, weight: Array | None = None, density: bool = False
) -> Array:
    points = x.reshape(-1, x.shape[-1])
    inside = jnp.ones(points.shape[0], np.bool_)
    places = []
    for column, edges in enumerate(bins):
        values, last = points[:, column], edges.shape[0] - 2
        inside &= (values >= edges[0]) & (values <= edges[-1])
        places.append(jnp.minimum(searchsorted(edges, values, right=True) - 1, last))
    shape = tuple(edges.shape[0] - 1 for edges in bins)
    # An index beyond the last bin is dropped; a negative one would count from the end.
    first = jnp.where(inside, places[0], shape[0])
    weights = jnp.ones((), x.dtype) if weight is None else weight.reshape(-1)
    counts = jnp.zeros(shape, x.dtype).at[(first, *places[1:])].add(weights, mode="drop")
    if density:
        counts = counts / counts.sum()
        for axis, edges in enumerate(bins):
            counts = counts / jnp.diff(edges).reshape(-1, *[1] * (len(bins) - 1 - axis))
    return counts
