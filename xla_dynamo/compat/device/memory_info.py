"""Bytes in use on a device, as torch_xla reports them.

A device that counts its memory (TPU, GPU) is asked. The CPU does not: the sizes of its live arrays
are added up, and the limit is the machine's memory.
"""

from __future__ import annotations

import os

from xla_dynamo.compat.recording import devices


def info(index: int) -> dict[str, int]:
    """{"bytes_used", "bytes_limit", "peak_bytes_used"} and, of 1.x, {"kb_free", "kb_total"}."""
    device = devices.client_device(index)
    stats = device.memory_stats() or _live_bytes(device)
    used, limit = stats["bytes_in_use"], stats["bytes_limit"]
    return {
        "bytes_used": used,
        "bytes_limit": limit,
        "peak_bytes_used": stats.get("peak_bytes_in_use", used),
        "kb_free": (limit - used) // 1024,
        "kb_total": limit // 1024,
    }


def _live_bytes(device: object) -> dict[str, int]:
    live = device.client.live_buffers()  # type: ignore[attr-defined]
    used = sum(array.nbytes for array in live if array.device == device)
    return {
        "bytes_in_use": used,
        "bytes_limit": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
