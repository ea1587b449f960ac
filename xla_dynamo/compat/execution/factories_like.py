"""Factories that take a tensor: `zeros_like(x, device=...)`, `x.new_full(...)`.

On the device of `x` they are recorded, as other ops are. For another one only the shape, dtype and
strides of `x` matter, and PyTorch makes the tensor there.
"""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.compat.recording import devices, pending, shape_inference
from xla_dynamo.compat.values.op_table import Handler, Op, handles
from xla_dynamo.compat.values.values import Leaf, Value, blank, leaf, meta

from . import sync
from .dispatch import record

aten = torch.ops.aten
_RECORDED = tuple(
    getattr(packet, overload)
    for packet in (
        *(aten.zeros_like, aten.ones_like, aten.full_like, aten.new_zeros, aten.new_ones),
        *(aten.new_full, aten.rand_like, aten.randn_like, aten.randint_like),
    )
    for overload in packet.overloads()
    if not overload.endswith("out")
)


def _here(make: Handler) -> Handler:
    """`make`, for the device of the first argument; PyTorch makes what another one is named for."""

    def handler(op: Op, args: Any, kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None or type(args[0]) is not Leaf:
            return make(op, args, kwargs)
        source: Value = args[0].value
        if device.type == "xla" and device.index is None:
            device = devices.default()
        if device == source.home.device:
            return make(op, args, kwargs)
        made_on = torch.device("cpu") if device.type == "xla" else device
        made = op.func(blank(source.meta), *args[1:], **kwargs | {"device": made_on})
        return leaf(sync.upload(pending.trace(device), made)) if device.type == "xla" else made

    return handler


handles(*_RECORDED)(_here(record))


@handles(aten.empty_like.default)
@_here
def _empty_like(op: Op, args: Any, kwargs: Any) -> Any:
    source: Value = args[0].value
    made = shape_inference.like(source.meta, kwargs.get("dtype"), kwargs.get("memory_format"))
    return leaf(Value(made, source.home))


@handles(aten.new_empty.default, aten.new_empty_strided.default)
@_here
def _new_empty(op: Op, args: Any, kwargs: Any) -> Any:
    source: Value = args[0].value
    dtype = kwargs.get("dtype") or source.meta.dtype
    return leaf(Value(meta(torch.Size(args[1]), dtype, *args[2:3]), source.home))
