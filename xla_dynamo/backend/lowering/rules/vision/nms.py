"""Non-maximum suppression, padded: of overlapping boxes, those with the best scores are kept.

Boxes are taken in blocks, best first. Within a block, the kept boxes are the fixed point of "no
kept box before overlaps this one", which as many rounds find as a chain of overlaps is long; they
then suppress boxes of later blocks. Memory is of one block times all boxes.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.registry import lower
from xla_dynamo.backend.lowering.rules.dynamic_shapes import leading_of
from xla_dynamo.backend.lowering.rules.sorting import sort_with_positions

_BLOCK = 256


@lower(torch.ops.xla_dynamo.nms_padded.default)
def nms_padded(boxes: Array, scores: Array, threshold: float) -> tuple[Array, Array]:
    count = boxes.shape[0]
    if not count:
        return jnp.zeros(0, np.int64), jnp.zeros((), np.int64)
    _, order = sort_with_positions(scores, 0, descending=True)
    block = min(_BLOCK, count)
    filling = -count % block
    ranked = jnp.pad(boxes[order], ((0, filling), (0, 0)))
    kept = _kept(ranked, jnp.arange(count + filling) < count, _not_above(threshold, boxes), block)
    return leading_of(order.astype(np.int64), kept[:count])


def _kept(boxes: Array, candidates: Array, threshold: np.ndarray, block: int) -> Array:
    """Which of `candidates`, best first, no better one suppresses."""
    number = jnp.arange(block)

    def settle(step: Array, alive: Array) -> Array:
        begin = step * block
        own = lax.dynamic_slice_in_dim(boxes, begin, block)
        over = _overlap(own, boxes) > threshold
        within = lax.dynamic_slice_in_dim(over, begin, block, 1) & (number[:, None] < number)
        mine = _fixed_point(lax.dynamic_slice_in_dim(alive, begin, block), within)
        later = jnp.arange(boxes.shape[0]) >= begin + block
        alive = alive & ~((over & mine[:, None]).any(0) & later)
        return lax.dynamic_update_slice_in_dim(alive, mine, begin, 0)

    return lax.fori_loop(0, boxes.shape[0] // block, settle, candidates)


def _fixed_point(candidates: Array, over: Array) -> Array:
    """The candidates that no kept one before suppresses; over[i, j]: whether i would suppress j."""

    def again(state: tuple[Array, Array]) -> tuple[Array, Array]:
        _, kept = state
        return kept, candidates & ~(over & kept[:, None]).any(0)

    def changed(state: tuple[Array, Array]) -> Array:
        before, kept = state
        return (before != kept).any()

    return lax.while_loop(changed, again, again((candidates, candidates)))[1]


def _overlap(some: Array, others: Array) -> Array:
    """Intersection over union, [some, others]; boxes are (left, top, right, bottom)."""
    corners, sizes = [], []
    for boxes in (some, others):
        corners.append((boxes[:, :2], boxes[:, 2:]))
        sizes.append((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
    (begin, end), (other_begin, other_end) = corners
    sides = jnp.minimum(end[:, None], other_end) - jnp.maximum(begin[:, None], other_begin)
    shared = jnp.maximum(sides, 0).prod(-1)
    return shared / (sizes[0][:, None] + sizes[1] - shared)


def _not_above(threshold: float, boxes: Array) -> np.ndarray:
    """The largest number of the boxes' dtype that is not above `threshold`, a float64."""
    near = np.asarray(threshold, boxes.dtype)
    below = np.nextafter(near, np.asarray(-np.inf, near.dtype))
    return np.where(near.astype(np.float64) > threshold, below, near).astype(near.dtype)
