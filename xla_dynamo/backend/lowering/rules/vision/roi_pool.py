"""roi_pool and ps_roi_pool: the maximum or the mean of the pixels in each bin of a box.

Boxes are rounded to whole pixels. Neighbouring bins may share pixels, and a bin outside the image
is empty: 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import lower
from xla_dynamo.backend.lowering.rules._numerics import divided

from ._regions import Regions, corners, over_bins

_LOWEST = -float(np.finfo(np.float32).max)  # what eager begins a maximum with, for all dtypes


@dataclass(frozen=True)
class _Bins:
    """Pixels of bins: on each axis the first of each bin, and how many; [K, bins], int32."""

    regions: Regions
    first: Sequence[Array]
    count: Sequence[Array]

    def area(self) -> Array:
        """[K, PH, PW, 1]."""
        rows, columns = (jnp.maximum(count, 0) for count in self.count)
        return (rows[:, :, None] * columns[:, None, :])[..., None]

    def pixel(self, i: Array, j: Array) -> tuple[Array, Array, Array]:
        """Pixel (i, j) of each bin: its row, its number in the image, and whether it exists."""
        y, x = self.first[0] + i, self.first[1] + j
        rows, columns = i < self.count[0], j < self.count[1]
        exists = rows[:, :, None] & columns[:, None, :]
        number = y[:, :, None] * self.regions.shape[3] + x[:, None, :]
        return self.regions.row(y, x), number[..., None], exists[..., None]


def _bins(
    rois: Array,
    scale: float,
    bins: tuple[int, int],
    shape: tuple[int, ...],
    *,
    has_channels: bool = False,
    omitted: int = 0,
) -> _Bins:
    """omitted: pixels at the end of each axis of an image that belong to no bin."""
    image, ends = corners(rois.astype(dtypes.accumulation(rois.dtype)))
    firsts, counts = [], []
    for (begin, end), number, size in zip(ends, bins, shape[2:], strict=True):
        start, stop = (
            lax.round(edge * scale, lax.RoundingMethod.AWAY_FROM_ZERO) for edge in (begin, end)
        )
        # The position-sensitive kernel excludes the end of a box.
        length = jnp.maximum(stop - start + (0 if has_channels else 1), 1)
        bin = divided(length, number)[:, None]
        place = jnp.arange(number, dtype=bin.dtype)
        first, after = (
            jnp.clip(edge + start[:, None], 0, size - omitted).astype(np.int32)
            for edge in (jnp.floor(place * bin), jnp.ceil((place + 1) * bin))
        )
        firsts.append(first)
        counts.append(after - first)
    return _Bins(Regions(image, shape, bins, has_channels), firsts, counts)


@lower("torchvision.roi_pool.default")
def roi_pool(x: Array, rois: Array, scale: float, height: int, width: int) -> tuple[Array, Array]:
    """Also the number of the largest pixel in its plane, the first of several; -1 for none."""
    bins = _bins(rois, scale, (height, width), x.shape)
    rows = bins.regions.rows(x.astype(dtypes.accumulation(x.dtype)))

    def compare(i: Array, j: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
        values, places = best
        row, number, exists = bins.pixel(i, j)
        pixels = bins.regions.gather(rows, row)
        larger = exists & (pixels > values)
        return jnp.where(larger, pixels, values), jnp.where(larger, number, places)

    zeros = bins.regions.zeros(rows.dtype)
    start = jnp.full_like(zeros, _LOWEST), jnp.full(zeros.shape, -1, np.int32)
    values, places = over_bins(bins.count, compare, start)
    values = jnp.where(bins.area() > 0, values, 0)
    return jnp.moveaxis(values, -1, 1), jnp.moveaxis(places, -1, 1)


@lower("torchvision._roi_pool_backward.default")
def roi_pool_backward(
    grad: Array, rois: Array, argmax: Array, scale: float, height: int, width: int, *shape: int
) -> Array:
    image, _ = corners(rois)
    regions = Regions(image, shape, (height, width))
    grad = grad.astype(dtypes.accumulation(grad.dtype))
    rows = regions.no_rows(grad.dtype)
    row = image[:, None, None, None] * (shape[2] * shape[3]) + argmax
    row = jnp.where(argmax >= 0, row, rows.shape[0])
    channel = jnp.arange(shape[1])[:, None, None]
    return regions.images(rows.at[row, channel].add(grad, mode="drop"))


@lower("torchvision.ps_roi_pool.default")
def ps_roi_pool(
    x: Array, rois: Array, scale: float, height: int, width: int
) -> tuple[Array, Array]:
    # Eager omits the last row and column of the images; its gradient does not.
    bins = _bins(rois, scale, (height, width), x.shape, has_channels=True, omitted=1)
    rows = bins.regions.rows(x.astype(dtypes.accumulation(x.dtype)))

    def add(i: Array, j: Array, sums: Array) -> Array:
        row, _, exists = bins.pixel(i, j)
        return sums + jnp.where(exists, bins.regions.gather(rows, row), 0)

    sums = over_bins(bins.count, add, bins.regions.zeros(rows.dtype))
    means = sums / jnp.maximum(bins.area(), 1).astype(rows.dtype)
    return jnp.moveaxis(means, -1, 1), bins.regions.channels()


@lower("torchvision._ps_roi_pool_backward.default")
def ps_roi_pool_backward(
    grad: Array,
    rois: Array,
    channel_mapping: Array,
    scale: float,
    height: int,
    width: int,
    *shape: int,
) -> Array:
    bins = _bins(rois, scale, (height, width), shape, has_channels=True)
    grad = grad.astype(dtypes.accumulation(grad.dtype))
    shares = jnp.moveaxis(grad, 1, -1) / jnp.maximum(bins.area(), 1).astype(grad.dtype)

    def add(i: Array, j: Array, rows: Array) -> Array:
        row, _, exists = bins.pixel(i, j)
        return rows.at[row].add(jnp.where(exists, shares, 0), mode="drop")

    return bins.regions.images(over_bins(bins.count, add, bins.regions.no_rows(grad.dtype)))
