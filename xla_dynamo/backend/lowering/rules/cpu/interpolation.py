"""Resizing on the CPU: by gathers of two taps, or of up to four that shrink an image."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jax import Array

from .. import interpolation
from ..interpolation import Taps

# Of more taps, products with matrices are faster.
_MOST_TAPS, _MOST_TAPS_OF_SHRINKING = 2, 4


@interpolation.resized.on("cpu")
def resized(x: Array, taps: Sequence[Taps]) -> Array:
    most = max(len(weights) for _, weights in taps)
    outputs = math.prod(weights.shape[1] for _, weights in taps)
    shrinks = outputs <= math.prod(x.shape[x.ndim - len(taps) :])
    if most <= (_MOST_TAPS_OF_SHRINKING if shrinks else _MOST_TAPS):
        return interpolation.by_taps(x, taps)
    return interpolation.resized.plain(x, taps)
