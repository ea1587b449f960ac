"""Paged attention: kernels on TPUs (tpu/paged_attention.py); elsewhere what it is made of."""

from __future__ import annotations

from typing import Any

import torch
from jax import Array

from xla_dynamo.backend.lowering.registry import PerPlatform, Unsupported, lower

ops = torch.ops.xla_dynamo


def products(reason: str) -> Unsupported:
    """The body of the op, which then stands in its place."""
    return Unsupported(reason, "Nothing needs to be done: it is computed by matrix products.")


def _decline(*_: Any) -> Array:
    raise products("There is a kernel on TPUs only.")


paged_attention: PerPlatform[..., Array] = PerPlatform(_decline)
ragged_paged_attention: PerPlatform[..., Array] = PerPlatform(_decline)
lower(ops.paged_attention.default)(paged_attention)
lower(ops.ragged_paged_attention.default)(ragged_paged_attention)
