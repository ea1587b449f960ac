"""roi_align and ps_roi_align: means of points that are sampled bilinearly in each bin of a box.

A point further than a pixel outside the image counts as 0. Without a sampling ratio, a bin has as
many points as the box has pixels for it, a number that is data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import jax.numpy as jnp
import numpy as np
from jax import Array

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import lower
from xla_dynamo.backend.lowering.rules._numerics import divided

from ._regions import Regions, corners, over_bins


@dataclass(frozen=True)
class _Axis:
    """The points of each box on one axis: begin, length of a bin, points in a bin; all [K]."""

    begin: Array
    bin: Array
    count: Array
    bins: int
    size: int

    def taps(self, step: Array) -> Iterator[tuple[Array, Array]]:
        """Two pixels of each bin's point of this number, and their weights, [K, bins]."""
        place = jnp.arange(self.bins, dtype=self.bin.dtype)
        begin, length, count = (x[:, None] for x in (self.begin, self.bin, self.count))
        position = begin + place * length + (step + 0.5) * length / jnp.maximum(count, 1)
        counts = (step < count) & (position >= -1) & (position <= self.size)
        position = jnp.clip(position, 0, self.size - 1)
        low = jnp.floor(position)
        share = position - low
        first = low.astype(np.int32)
        yield first, jnp.where(counts, 1 - share, 0)
        yield jnp.minimum(first + 1, self.size - 1), jnp.where(counts, share, 0)


@dataclass(frozen=True)
class _Points:
    """The points of all bins; total: how many a bin has, [K, 1, 1, 1]."""

    regions: Regions
    axes: Sequence[_Axis]
    total: Array

    def mean(self, images: Array) -> Array:
        rows = self.regions.rows(images.astype(dtypes.accumulation(images.dtype)))

        def add(i: Array, j: Array, sums: Array) -> Array:
            for pixel, weight in self._taps(i, j):
                values = self.regions.gather(rows, pixel) * weight
                sums = sums + jnp.where(weight != 0, values, 0)
            return sums

        counts = [axis.count for axis in self.axes]
        sums = over_bins(counts, add, self.regions.zeros(rows.dtype))
        return jnp.moveaxis(sums / self.total, -1, 1)

    def spread(self, grad: Array) -> Array:
        """The gradient of the images; grad: [K, columns, PH, PW]."""
        grad = grad.astype(dtypes.accumulation(grad.dtype))
        shares = jnp.moveaxis(grad, 1, -1) / self.total

        def add(i: Array, j: Array, rows: Array) -> Array:
            for pixel, weight in self._taps(i, j):
                rows = rows.at[pixel].add(jnp.where(weight != 0, shares * weight, 0), mode="drop")
            return rows

        counts = [axis.count for axis in self.axes]
        return self.regions.images(over_bins(counts, add, self.regions.no_rows(grad.dtype)))

    def _taps(self, i: Array, j: Array) -> Iterator[tuple[Array, Array]]:
        """Pixels [K, PH, PW], and weights [K, PH, PW, 1]."""
        rows, columns = self.axes
        for (y, weight), (x, other) in product(rows.taps(i), columns.taps(j)):
            yield self.regions.row(y, x), (weight[:, :, None] * other[:, None, :])[..., None]


def _points(
    rois: Array,
    scale: float,
    bins: tuple[int, int],
    shape: tuple[int, ...],
    ratio: int,
    *,
    aligned: bool = True,
    has_channels: bool = False,
) -> _Points:
    rois = rois.astype(dtypes.accumulation(rois.dtype))
    image, ends = corners(rois)
    axes = []
    for (begin, end), number, size in zip(ends, bins, shape[2:], strict=True):
        shift = 0.5 if aligned else 0.0
        start = begin * scale - shift
        length = end * scale - shift - start
        if not aligned:
            length = jnp.maximum(length, 1)
        bin = divided(length, number)
        count = jnp.full(bin.shape, ratio) if ratio > 0 else jnp.ceil(bin)
        axes.append(_Axis(start, bin, count, number, size))
    total = axes[0].count * axes[1].count
    total = total.astype(rois.dtype) if has_channels else jnp.maximum(total, 1).astype(rois.dtype)
    return _Points(Regions(image, shape, bins, has_channels), axes, total[:, None, None, None])


@lower("torchvision.roi_align.default")
def roi_align(
    x: Array, rois: Array, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> Array:
    return _points(rois, scale, (height, width), x.shape, ratio, aligned=aligned).mean(x)


@lower("torchvision._roi_align_backward.default")
def roi_align_backward(
    grad: Array,
    rois: Array,
    scale: float,
    height: int,
    width: int,
    *shape_ratio_aligned: int,
) -> Array:
    *shape, ratio, aligned = shape_ratio_aligned
    bins = height, width
    return _points(rois, scale, bins, tuple(shape), ratio, aligned=bool(aligned)).spread(grad)


@lower("torchvision.ps_roi_align.default")
def ps_roi_align(
    x: Array, rois: Array, scale: float, height: int, width: int, ratio: int
) -> tuple[Array, Array]:
    points = _points(rois, scale, (height, width), x.shape, ratio, has_channels=True)
    return points.mean(x), points.regions.channels()


@lower("torchvision._ps_roi_align_backward.default")
def ps_roi_align_backward(
    grad: Array,
    rois: Array,
    channel_mapping: Array,
    scale: float,
    height: int,
    width: int,
    ratio: int,
    *shape: int,
) -> Array:
    return _points(rois, scale, (height, width), shape, ratio, has_channels=True).spread(grad)
