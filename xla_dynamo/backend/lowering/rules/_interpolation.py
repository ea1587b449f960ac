"""Shared by the resizing ops: output sizes, sampling steps, and products with a matrix per axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def output_sizes(
    sizes: Sequence[int], output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
) -> list[int]:
    """The sizes after resizing, from the sizes or from the scale factors that torch is given."""
    if output_size is not None:
        return list(output_size)
    return [int(n * scale) for n, scale in zip(sizes, scale_factors or (), strict=True)]


def step(size: int, out: int, align_corners: bool, scale: float | None, dtype: np.dtype) -> Any:
    """The distance in the input between neighbours of the output."""
    number = dtype.type
    if align_corners:
        return number(size - 1) / number(out - 1) if out > 1 else number(0)
    return number(1 / scale) if scale else number(size) / number(out)


def contract(x: Array, matrices: Sequence[np.ndarray]) -> Array:
    """Multiply each of the trailing axes of `x` with its matrix [new size, size].

    A product puts the new axis last, so that after all of them the axes are in order again.
    """
    first = x.ndim - len(matrices)
    for matrix in matrices:
        x = lax.dot_general(x, jnp.asarray(matrix, x.dtype), (((first,), (1,)), ((), ())))
    return x
