"""Ops that are the identity in eager, and that XLA must not see through.

XLA may merge the steps on both sides of an operation it knows; it merges nothing across these.
lowering/rules/prims.py lowers them.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("xla_dynamo::optimization_barrier", mutates_args=())
def optimization_barrier(x: Tensor) -> Tensor:
    """A copy of `x`, of which XLA does not know what it was computed from."""
    return x.clone()


@optimization_barrier.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("xla_dynamo::materialize", mutates_args=())
def materialize(x: Tensor) -> Tensor:
    """A copy of `x`, which is in memory before what uses it begins."""
    return x.clone()


@materialize.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("xla_dynamo::rounded_to", mutates_args=())
def rounded_to(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` rounded to `dtype`, float16 or bfloat16, as float32."""
    return x.to(dtype).float()


@rounded_to.register_fake
def _(x: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty_like(x, dtype=torch.float32)
