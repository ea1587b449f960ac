"""Barriers on the CPU that outlast fusion."""

from __future__ import annotations

import jax
from jax import Array
from jax.experimental.xla_metadata import set_xla_metadata

from .. import prims


@prims.materialize.on("cpu")
def materialize(x: Array) -> Array:
    """A call: XLA:CPU removes barriers before it fuses ops. (Elsewhere calls are inlined.)"""
    with set_xla_metadata(inlineable="false"):
        return jax.jit(lambda x: x)(x)
