"""Boxes on images that are divided into bins: how pixels are numbered, and loops over bins.

How many pixels or sample points a bin has is data. A loop takes one of every bin at a time, as many
times as the largest bin needs: memory does not grow with the boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Carried = TypeVar("Carried")


@dataclass(frozen=True)
class Regions:
    """K boxes; pixels are rows of a matrix, with what is read together as columns.

    image: [K], the image of each box.
    shape: of the images, [N, C, H, W].
    bins: (PH, PW), bins of a box.
    has_channels: whether each bin reads channels of its own (position-sensitive ops): C is then
        columns * PH * PW. Otherwise each bin reads all.
    """

    image: Array
    shape: tuple[int, ...]
    bins: tuple[int, int]
    has_channels: bool = False

    @property
    def columns(self) -> int:
        return self.shape[1] // prod(self.bins) if self.has_channels else self.shape[1]

    def rows(self, images: Array) -> Array:
        """[N, C, H, W] -> [rows, columns]."""
        batch, _, *plane = self.shape
        planes = self.bins if self.has_channels else ()
        split = images.reshape(batch, self.columns, *planes, *plane)
        return jnp.moveaxis(split, 1, -1).reshape(-1, self.columns)

    def images(self, rows: Array) -> Array:
        """The inverse of `rows`."""
        batch, _, *plane = self.shape
        planes = self.bins if self.has_channels else ()
        split = rows.reshape(batch, *planes, *plane, self.columns)
        return jnp.moveaxis(split, -1, 1).reshape(self.shape)

    def row(self, y: Array, x: Array) -> Array:
        """The rows of pixels, [K, PH, PW]; y: [K, PH], x: [K, PW]."""
        height, width = self.shape[2:]
        plane = self.image[:, None, None]
        if self.has_channels:
            bins = jnp.arange(prod(self.bins), dtype=plane.dtype).reshape(self.bins)
            plane = plane * prod(self.bins) + bins
        return (plane * height + y[:, :, None]) * width + x[:, None, :]

    def gather(self, rows: Array, at: Array) -> Array:
        """[K, PH, PW, columns]; NaN for an image that there is not."""
        return rows.at[at].get(mode="fill", fill_value=jnp.nan)

    def zeros(self, dtype: np.dtype) -> Array:
        return jnp.zeros((*self.image.shape, *self.bins, self.columns), dtype)

    def no_rows(self, dtype: np.dtype) -> Array:
        return jnp.zeros((prod(self.shape) // max(self.columns, 1), self.columns), dtype)

    def channels(self) -> Array:
        """The channel that each result is made of, [K, columns, PH, PW], int32."""
        shape = (self.columns, *self.bins)
        return jnp.broadcast_to(
            jnp.arange(prod(shape), dtype=np.int32).reshape(shape), (*self.image.shape, *shape)
        )


def corners(rois: Array) -> tuple[Array, Sequence[tuple[Array, Array]]]:
    """The image of each box, [K], and its (start, end) on the two axes, y and x; rois: [K, 5]."""
    image, left, top, right, bottom = jnp.unstack(rois, axis=1)
    return image.astype(np.int32), ((top, bottom), (left, right))


def over_bins(
    counts: Sequence[Array], step: Callable[[Array, Array, Carried], Carried], start: Carried
) -> Carried:
    """`start` after `step(i, j, carried)` for all i, j below the largest of `counts` of an axis."""
    rows, columns = (count.max(initial=0).astype(np.int32) for count in counts)
    return lax.fori_loop(
        0, rows * columns, lambda n, carried: step(n // columns, n % columns, carried), start
    )
