"""The dtype in which tensors are stored on the device, by torch_xla's environment variables.

XLA_USE_BF16 stores float32 and float64 as bfloat16; XLA_DOWNCAST_BF16 stores float32 as bfloat16
and float64 as float32. XLA_USE_FP16, XLA_USE_F16 and XLA_DOWNCAST_FP16 do the same with float16.
XLA_USE_32BIT_LONG stores int64 as int32. Tensors go on reporting their PyTorch dtype, and have it
again once they are back on the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch


def from_environment(environment: Mapping[str, str]) -> dict[torch.dtype, torch.dtype]:
    """The dtypes that are stored as another one."""

    def on(*names: str) -> bool:
        return any(environment.get(name, "0").lower() in ("1", "true", "yes") for name in names)

    stored: dict[torch.dtype, torch.dtype] = {}
    for narrow, use, downcast in (
        (torch.float16, ("XLA_USE_FP16", "XLA_USE_F16"), ("XLA_DOWNCAST_FP16",)),
        (torch.bfloat16, ("XLA_USE_BF16",), ("XLA_DOWNCAST_BF16",)),
    ):
        if on(*downcast):
            stored |= {torch.float32: narrow, torch.float64: torch.float32}
        if on(*use):
            stored |= {torch.float32: narrow, torch.float64: narrow}
    if on("XLA_USE_32BIT_LONG"):
        stored[torch.int64] = torch.int32
    return stored


# Read once: values that are on the device keep the dtype in which they were stored.
STORED = from_environment(os.environ)


def stored(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of `dtype` are stored."""
    return STORED.get(dtype, dtype) if STORED else dtype
