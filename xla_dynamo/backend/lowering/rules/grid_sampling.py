"""Sampling images at given positions, and its gradients: gathers of pixels and weighted sums.

A pixel is gathered with all its channels at once. A position outside the image gives 0, or is moved
to the border, or mirrored; a sample is a weighted sum of two or four neighbours on each axis.
Gradients are JAX's of these formulas, in which a position that was moved to the border has slope 0
and the choice of neighbours is constant, as in eager.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod

import jax
import jax.numpy as jnp
import torch
from jax import Array

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import Unsupported, lower

from ._interpolation import cubic_far, cubic_near

aten = torch.ops.aten

LINEAR, NEAREST, CUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)
# For one axis: a neighbour's index as a float, and its weight.
Tap = tuple[Array, Array | float]


@lower(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(
    x: Array, grid: Array, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Array:
    """Positions are between -1 and 1, in the order (width, height, depth)."""
    if interpolation_mode == CUBIC and x.ndim != 4:
        raise Unsupported(
            "Bicubic sampling is for planes, and this is a volume.", "Use mode='bilinear'."
        )
    dtype, sizes = x.dtype, x.shape[2:]
    x, grid = (a.astype(dtypes.accumulation(a.dtype)) for a in (x, grid))
    taps = []
    for axis, size in enumerate(sizes):
        position = _pixels(grid[..., len(sizes) - 1 - axis], size, align_corners)
        if interpolation_mode == CUBIC:
            moved = [
                (_inside(p, size, padding_mode, align_corners), w) for p, w in _cubic_taps(position)
            ]
            taps.append(moved)
            continue
        position = _inside(position, size, padding_mode, align_corners)
        nearest = interpolation_mode == NEAREST
        taps.append([(jnp.round(position), 1.0)] if nearest else linear_taps(position))
    return weighted_sum(x, taps).astype(dtype)


@lower(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(
    grad: Array,
    x: Array,
    grid: Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Array | None, Array]:
    """As eager has it, the grid's gradient is defined whether or not it is wanted."""

    def forward(x: Array, grid: Array) -> Array:
        return grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners)

    of_x, of_grid = jax.vjp(forward, x, grid)[1](grad)
    return of_x if output_mask[0] else None, of_grid


def weighted_sum(x: Array, taps: Sequence[Sequence[Tap]]) -> Array:
    """The sum over all combinations of one tap for each axis; a pixel outside counts as 0."""
    sizes, batch = x.shape[2:], x.shape[0]
    pixels = jnp.moveaxis(x, 1, -1).reshape(batch, prod(sizes), x.shape[1])
    rows = jnp.arange(batch).reshape(-1, *[1] * len(sizes))
    total = jnp.zeros((), x.dtype)
    for combination in product(*taps):
        flat = jnp.zeros((), jnp.int32)
        weight, within = jnp.ones((), x.dtype), jnp.ones((), bool)
        for (position, share), size in zip(combination, sizes, strict=True):
            within = within & (position >= 0) & (position <= size - 1)
            flat = flat * size + jnp.clip(position, 0, size - 1).astype(jnp.int32)
            weight = weight * share
        values = pixels.at[rows, flat].get(mode="promise_in_bounds")
        weight = jnp.broadcast_to(weight, within.shape)
        total = total + jnp.where(within[..., None], values * weight[..., None], 0)
    return jnp.moveaxis(total, -1, 1)


def _pixels(position: Array, size: int, align_corners: bool) -> Array:
    """From [-1, 1] to pixels; the ends are the centers or the edges of the outer pixels."""
    if align_corners:
        return (position + 1) / 2 * (size - 1)
    return ((position + 1) * size - 1) / 2


def _inside(position: Array, size: int, padding_mode: int, align_corners: bool) -> Array:
    if padding_mode == ZEROS:
        return position
    if padding_mode == REFLECTION:
        low = 0.0 if align_corners else -0.5
        span = size - 1 if align_corners else size
        position = _mirrored(position - low, span) + low if span else jnp.zeros_like(position)
    inner = jnp.where(position > 0, position, 0)  # NaN samples the first pixel, as documented
    return jnp.where(inner < size - 1, inner, size - 1)


def _mirrored(distance: Array, span: float) -> Array:
    distance = jnp.where(distance < 0, -distance, distance)
    flips = jnp.floor(distance / span)
    extra = distance - flips * span
    return jnp.where(flips % 2 == 0, extra, span - extra)


def linear_taps(position: Array) -> list[Tap]:
    first = jnp.floor(position)
    share = position - first
    return [(first, 1 - share), (first + 1, share)]


def _cubic_taps(position: Array) -> list[Tap]:
    first = jnp.floor(position)
    share = position - first
    near, far = partial(cubic_near, a=-0.75), partial(cubic_far, a=-0.75)
    weights = (far(share + 1), near(share), near(1 - share), far(2 - share))
    return [(first + offset, weight) for offset, weight in zip(range(-1, 3), weights, strict=True)]
