"""Tensors that XLA cannot hold (sparse, quantized): the error that says so, with the user's line.

XLA's arrays are dense, and of the dtypes that backend.lowering.dtypes lists.
"""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.errors import UnsupportedOp

from . import describe
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
    if layout is torch.strided:
        return "Convert it to a dtype that XLA has before it is moved (x.dequantize(), x.float())."
    return "Convert it with x.to_dense() on the CPU."
