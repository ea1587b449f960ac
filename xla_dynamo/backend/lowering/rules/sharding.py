"""Shardings inside of a program: constraints for XLA's partitioner Shardy, and where it pauses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jax import Array
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.interpreters import mlir

from xla_dynamo.backend.lowering import manual
from xla_dynamo.backend.lowering.registry import lower


@lower(torch.ops.xla_dynamo.mark_sharding.default)
def mark_sharding(x: Array, sharding: str) -> Array:
    return _constraint.bind(x, sharding=sharding)


def _emit(ctx: Any, x: Any, *, sharding: str) -> Any:
    attributes = {"sharding": ir.Attribute.parse(sharding)}
    return list(ir.Operation.create("sdy.sharding_constraint", [x.type], [x], attributes).results)


@lower(torch.ops.xla_dynamo.enter_manual.default)
def enter_manual(x: Array, sharding: str, shape: Sequence[int]) -> Array:
    return _crossing.bind(x, target=manual.ENTER, sharding=sharding, shape=tuple(shape))


@lower(torch.ops.xla_dynamo.leave_manual.default)
def leave_manual(x: Array, sharding: str, shape: Sequence[int]) -> Array:
    return _crossing.bind(x, target=manual.LEAVE, sharding=sharding, shape=tuple(shape))


def _emit_crossing(ctx: Any, x: Any, *, target: str, sharding: str, shape: Any) -> Any:
    attributes: dict[str, Any] = {
        "call_target_name": ir.StringAttr.get(target),
        "backend_config": ir.StringAttr.get(sharding),
    }
    types = [ir.RankedTensorType.get(list(shape), x.type.element_type)]
    return list(ir.Operation.create("stablehlo.custom_call", types, [x], attributes).results)


_crossing = Primitive("xla_dynamo_manual_crossing")
_crossing.def_abstract_eval(lambda x, *, shape, **_: x.update(shape=shape))
mlir.register_lowering(_crossing, _emit_crossing)
_constraint = Primitive("xla_dynamo_sharding_constraint")
_constraint.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(_constraint, _emit)
