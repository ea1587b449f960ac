"""Attention with capped scores: a kernel on TPUs (tpu/attention.py); elsewhere its products."""

from __future__ import annotations

from typing import Any

import torch
from jax import Array

from xla_dynamo.backend.lowering.registry import PerPlatform, Unsupported, lower

ops = torch.ops.xla_dynamo


def products() -> Unsupported:
    """The body of the op, which then stands in its place."""
    return Unsupported(
        "There is a kernel on TPUs only, for long sequences.",
        "Nothing needs to be done: it is computed by matrix products.",
    )


def _decline(*_: Any) -> Any:
    raise products()


capped_attention: PerPlatform[..., tuple[Array, Array]] = PerPlatform(_decline)
capped_attention_backward: PerPlatform[..., tuple[Array, Array, Array]] = PerPlatform(_decline)
lower(ops.capped_attention.default)(capped_attention)
lower(ops.capped_attention_backward.default)(capped_attention_backward)
