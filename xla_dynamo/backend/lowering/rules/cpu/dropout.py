"""Dropout's mask on the CPU: made once, in a loop of its own.

XLA would draw the bits again in each op that reads the mask, and where such an op takes every other
element (after max pooling, say) LLVM does not vectorize the loop: 9.2 ms for the 590,000 elements
of a convnet's, 1.7 ms on their own.
"""

from __future__ import annotations

import numpy as np
from jax import Array

from .. import dropout
from .prims import materialize


@dropout.below.on("cpu")
def below(key: Array, shape: tuple[int, ...], threshold: np.uint32) -> Array:
    return materialize(dropout.below.plain(key, shape, threshold))
