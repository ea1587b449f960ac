"""Exchange xla tensors with other libraries through DLPack, as copies on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import dlpack

_dlpack: Any = dlpack


def to_dlpack(xla_tensor: torch.Tensor) -> Any:
    """A DLPack capsule of the tensor's value; waits for it."""
    return _dlpack.to_dlpack(xla_tensor.detach().cpu())


def from_dlpack(ext_tensor: Any) -> torch.Tensor:
    """A tensor on the default xla device with the value of a capsule or of another library's array.

    Args:
        ext_tensor: a capsule, or what has `__dlpack__`, on the CPU.
    """
    return torch.from_dlpack(ext_tensor).to("xla")
