"""Bytes in use on a device, as torch_xla reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xla_dynamo.compat.recording import devices
from xla_dynamo.lazily import lazily

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import device_memory
else:
    device_memory = lazily("xla_dynamo.backend.runtime.device_memory", globals())


def info(index: int) -> dict[str, int]:
    """{"bytes_used", "bytes_limit", "peak_bytes_used"} and, of 1.x, {"kb_free", "kb_total"}."""
    stats = device_memory.stats(devices.client_device(index))
    used, limit = stats["bytes_in_use"], stats["bytes_limit"]
    return {
        "bytes_used": used,
        "bytes_limit": limit,
        "peak_bytes_used": stats.get("peak_bytes_in_use", used),
        "kb_free": (limit - used) // 1024,
        "kb_total": limit // 1024,
    }
