"""Ops that are the identity in eager, and that XLA must not see through.

XLA may merge the operations on both sides of one that it knows; it merges nothing across these.
lowering/rules/prims.py lowers them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .registration import op


@op()
def optimization_barrier(x: Tensor) -> Tensor:
    """A copy of `x`; how `x` was computed is hidden from XLA."""
    return x.clone()


@op()
def materialize(x: Tensor) -> Tensor:
    """A copy of `x` that is in memory before any use of it begins."""
    return x.clone()


@op()
def rounded_to(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` rounded to `dtype`, float16 or bfloat16, as float32."""
    return x.to(dtype).to(torch.float32)
