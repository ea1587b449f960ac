"""torch_xla.amp.autocast: torch.autocast("xla"), with the argument lists of every release."""

from __future__ import annotations

import functools
from typing import Any

import torch


class autocast(torch.autocast):
    """Run products and convolutions in `dtype`.

    Args:
        device: an xla device; releases before 1.13 took none.
        enabled: whether to cast at all.
        dtype: torch.bfloat16, the default, or torch.float16.
        cache_enabled: as in torch.autocast.

    Raises:
        AssertionError: another device.
    """

    def __init__(
        self,
        device: Any = "xla",
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool = True,
    ) -> None:
        if isinstance(device, bool):  # autocast(enabled) of the early releases
            device, enabled = "xla", device
        assert "xla" in str(device), f"torch_xla.amp.autocast is for xla devices, not {device}"
        super().__init__(
            "xla", dtype=dtype or torch.bfloat16, enabled=enabled, cache_enabled=cache_enabled
        )


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="xla")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="xla")
