"""A sharding inside of a program, as the constraint that XLA's partitioner Shardy takes."""

from __future__ import annotations

from typing import Any

import torch
from jax import Array
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.interpreters import mlir

from xla_dynamo.backend.lowering.registry import lower


@lower(torch.ops.xla_dynamo.mark_sharding.default)
def mark_sharding(x: Array, sharding: str) -> Array:
    return _constraint.bind(x, sharding=sharding)


def _emit(ctx: Any, x: Any, *, sharding: str) -> Any:
    attributes = {"sharding": ir.Attribute.parse(sharding)}
    return list(ir.Operation.create("sdy.sharding_constraint", [x.type], [x], attributes).results)


_constraint = Primitive("xla_dynamo_sharding_constraint")
_constraint.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(_constraint, _emit)
