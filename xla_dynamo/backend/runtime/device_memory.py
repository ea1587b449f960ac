"""Bytes in use on a device.

A device that counts its memory (TPU, GPU) is asked. The CPU does not: the sizes of its live arrays
are added up, and the limit is the machine's memory.
"""

from __future__ import annotations

import os
from typing import Any


def stats(device: Any) -> dict[str, int]:
    """PJRT's memory statistics: at least "bytes_in_use" and "bytes_limit"."""
    return device.memory_stats() or _live_bytes(device)


def _live_bytes(device: Any) -> dict[str, int]:
    used = sum(array.nbytes for array in device.client.live_buffers() if array.device == device)
    return {
        "bytes_in_use": used,
        "bytes_limit": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def of_process() -> int:
    """Bytes of this process that are in the machine's memory; 0 where /proc does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
