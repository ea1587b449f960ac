"""The torch.prims ops that PyTorch's decompositions leave in a graph, and the project's barriers.

Decompositions of foreach optimizers and of a few references end in prims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering.dtypes import to_numpy
from xla_dynamo.backend.lowering.registry import PerPlatform, lower

from ._numerics import rounded_to
from ._promotion import compute
from .views import cast

prims = torch.ops.prims


@lower(prims.convert_element_type.default)
def convert_element_type(x: Array, dtype: torch.dtype) -> Array:
    return cast(x, to_numpy(dtype))


@lower("prims.fma.default")  # defined by torch._inductor, which Dynamo imports
def fma(a: Array, b: Array, c: Array) -> Array:
    """Dynamo's add_(other, alpha=...): the product is not rounded to 16 bits."""
    return compute(lambda a, b, c: a * b + c, a, b, c)


lower(prims.device_put.default, prims.view_of.default)(lambda x, *_: x)
lower(torch.ops.xla_dynamo.optimization_barrier.default)(lax.optimization_barrier)


@lower(prims.broadcast_in_dim.default)
def broadcast_in_dim(x: Array, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Array:
    return lax.broadcast_in_dim(x, tuple(shape), tuple(broadcast_dimensions))


@lower(prims.iota.default)
def iota(length: int, *, start: int, step: int, dtype: torch.dtype, **_: Any) -> Array:
    numbers = lax.iota(to_numpy(torch.int64), length) * step + start
    return cast(jnp.asarray(numbers), to_numpy(dtype))


@lower(torch.ops.xla_dynamo.rounded_to.default)
def rounded_number(x: Array, dtype: torch.dtype) -> Array:
    return rounded_to(x.astype(jnp.float32), to_numpy(dtype))


@lower(torch.ops.xla_dynamo.materialize.default)
@PerPlatform
def materialize(x: Array) -> Array:
    return lax.optimization_barrier(x)
