"""Which tensors the device holds, and in which dtype.

XLA's arrays are dense, and of the dtypes that backend.lowering.dtypes lists. For a tensor that is
not (sparse, quantized) there is an error that says so, with the user's line.

Environment variables of torch_xla, read at the first tensor, choose another dtype in the device's
memory. XLA_USE_BF16 stores
float32 and float64 as bfloat16; XLA_DOWNCAST_BF16 stores float32 as bfloat16 and float64 as
float32. XLA_USE_FP16, XLA_USE_F16 and XLA_DOWNCAST_FP16 do the same with float16.
XLA_USE_32BIT_LONG stores int64 as int32. Tensors go on reporting their PyTorch dtype, and have it
again once they are back on the CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.errors import UnsupportedOp

from . import describe, environment
from .source_location import user_location


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether an xla device can hold such a tensor."""
    return tensor.layout is torch.strided and dtypes.is_supported(tensor.dtype)


def refuse(layout: torch.layout, dtype: torch.dtype, func: Any = None) -> UnsupportedOp:
    """The error for a tensor of this layout and dtype: a result of `func`, or moved by the user."""
    kind = str(dtype if layout is torch.strided else layout).removeprefix("torch.")
    whose = "" if func is None else f"{describe.op_name(func)}: "
    why = "XLA has no such dtype" if layout is torch.strided else "XLA's arrays are dense"
    return UnsupportedOp(
        f"{whose}a {kind} tensor cannot be on an xla device: {why}. {_remedy(layout)} "
        f"(at {describe.where(user_location())})"
    )


def _remedy(layout: torch.layout) -> str:
    if str(layout).startswith("torch.sparse"):
        return (
            "Keep it on the CPU (x.cpu() before the op, for one that makes it), or move "
            "x.to_dense(); an embedding's gradient is dense with sparse=False."
        )
    if layout is torch.jagged:
        return (
            "Move its values() and offsets(), or x.to_padded_tensor(0.0); torch.compile takes "
            "those too, and makes the nested tensor inside."
        )
    if layout is torch.strided:
        return "Convert it to a dtype that XLA has before it is moved (x.dequantize(), x.float())."
    return "Convert it with x.to_dense() on the CPU."


def _from_environment(variables: Mapping[str, str]) -> dict[torch.dtype, torch.dtype]:
    """The dtypes that are stored as another one."""

    def on(*names: str) -> bool:
        return any(variables.get(name, "0").lower() in ("1", "true", "yes") for name in names)

    stored: dict[torch.dtype, torch.dtype] = {}
    for narrow, use, downcast in (
        (torch.float16, ("XLA_USE_FP16", "XLA_USE_F16"), ("XLA_DOWNCAST_FP16",)),
        (torch.bfloat16, ("XLA_USE_BF16",), ("XLA_DOWNCAST_BF16",)),
    ):
        if on(*use, *downcast):
            double = narrow if on(*use) else torch.float32
            stored |= {torch.float32: narrow, torch.float64: double}
    if on("XLA_USE_32BIT_LONG"):
        stored[torch.int64] = torch.int32
    return stored


@functools.cache
def overrides() -> Mapping[torch.dtype, torch.dtype]:
    """The dtypes that are stored as another one, for the life of the process.

    Values that are on the device keep the dtype in which they were stored.
    """
    return _from_environment(environment.read(environment.DEVICE))


def stored(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of `dtype` are stored."""
    return overrides().get(dtype, dtype)
