"""Barriers on the CPU that outlast fusion."""

from __future__ import annotations

import jax
import torch
from jax import Array
from jax.experimental.xla_metadata import set_xla_metadata

from xla_dynamo.backend.lowering.registry import lower

from .. import prims  # noqa: F401  (has the plain rule)


@lower(torch.ops.xla_dynamo.materialize.default, platform="cpu")
def materialize(x: Array) -> Array:
    """A call: XLA:CPU removes barriers before it fuses ops. (Elsewhere calls are inlined.)"""
    with set_xla_metadata(inlineable="false"):
        return jax.jit(lambda x: x)(x)
