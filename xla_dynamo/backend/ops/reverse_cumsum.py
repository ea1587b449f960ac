"""The cumulative sum from the end of a dimension; lowering/rules/scans.py lowers it."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("xla_dynamo::reverse_cumsum", mutates_args=())
def reverse_cumsum(x: Tensor, dim: int) -> Tensor:
    """For each element along `dim`, the sum of it and all after it."""
    return x.flip(dim).cumsum(dim).flip(dim)


@reverse_cumsum.register_fake
def _(x: Tensor, dim: int) -> Tensor:
    return torch.empty_like(x.cumsum(dim))
