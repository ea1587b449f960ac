"""float32 numbers -> what 16 bits hold of them, still in float32.

As a conversion there and back XLA would drop it. Importing this module registers an op;
lowering/rules/primitives.py lowers it.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("xla_dynamo::rounded_to", mutates_args=())
def rounded_to(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` rounded to `dtype`, float16 or bfloat16, as float32."""
    return x.to(dtype).float()


@rounded_to.register_fake
def _(x: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty_like(x, dtype=torch.float32)
