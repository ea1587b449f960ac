"""PyTorch's dimension arguments as JAX axes: negative, missing, empty and 0-d ones.

A 0-d tensor takes the dims 0 and -1 as if it had one dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array


def axis(dim: int, ndim: int) -> int:
    """The non-negative axis that `dim` names (0 for a 0-d tensor)."""
    return dim % ndim if ndim else 0


def axes(dims: Sequence[int] | int | None, ndim: int) -> tuple[int, ...]:
    """The axes of a reduction; None and [] mean all of them."""
    if ndim == 0:
        return ()
    if isinstance(dims, int):
        dims = [dims]
    return tuple(range(ndim)) if not dims else tuple(dim % ndim for dim in dims)


def at_least_1d(x: Array) -> Array:
    """`x`, with a dimension of size 1 if it has none."""
    return x.reshape(1) if x.ndim == 0 else x


def along(dim: int, entry: Any) -> tuple[Any, ...]:
    """The key that indexes axis `dim` with `entry` and takes everything else."""
    return (*(slice(None),) * dim, entry)
