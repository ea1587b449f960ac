"""torch_xla.core.xla_model: devices, the barrier, collectives."""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.compat import device as lazy_device
from xla_dynamo.compat import execute


def xla_device(n: int | None = None, devkind: Any = None) -> torch.device:
    """The xla device."""
    return torch.device("xla", 0)


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """The barrier."""
    for window in lazy_device.windows():
        execute.cut(window)
