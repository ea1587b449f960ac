"""Shared by resizing and sampling: sizes, steps, kernels, and products with a matrix per axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def by_factors(
    upsample: Callable[..., Array], rank: int, x: Array, size: Sequence[int] | None, *rest: Any
) -> Array:
    """The `vec` overload of `upsample`: scale factors come last, and give the size if none is."""
    *settings, factors = rest
    if size is None:
        size = [int(n * factor) for n, factor in zip(x.shape[-rank:], factors or (), strict=True)]
    return upsample(x, size, *settings, *(factors or ()))


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


def cubic_near(x: Any, a: float) -> Any:
    """The cubic kernel at a distance below 1."""
    return ((a + 2) * x - (a + 3)) * x * x + 1


def cubic_far(x: Any, a: float) -> Any:
    """The cubic kernel at a distance from 1 to 2."""
    return ((x - 5) * x + 8) * x * a - 4 * a
