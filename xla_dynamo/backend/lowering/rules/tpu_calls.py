"""A kernel that is compiled for Mosaic is called on TPUs (tpu/tpu_calls.py), and nowhere else."""

from __future__ import annotations

from typing import Any

import torch
from jax import Array

from xla_dynamo.backend.lowering.registry import PerPlatform, Unsupported, lower
from xla_dynamo.backend.ops import tpu_calls


def _decline(*_: Any) -> list[Array]:
    raise Unsupported(tpu_calls.REASON, tpu_calls.REMEDY)


tpu_custom_call: PerPlatform[..., list[Array]] = PerPlatform(_decline)
lower(torch.ops.xla_dynamo.tpu_custom_call.default)(tpu_custom_call)
