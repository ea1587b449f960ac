"""The cumulative sum from the end of a dimension; lowering/rules/scans.py lowers it."""

from __future__ import annotations

from torch import Tensor

from .registration import op


@op()
def reverse_cumsum(x: Tensor, dim: int) -> Tensor:
    """For each element along `dim`, the sum of it and all after it."""
    return x.flip(dim).cumsum(dim).flip(dim)
