"""Freed host memory stays with the process, where glibc would give each step's back to the kernel.

A program's results are new buffers, freed a step later. glibc returns blocks of that size to the
kernel at once, so that every step takes fresh pages, each zeroed at its first touch: a ResNet-18
training step had 34,000 page faults and took 118 ms, against 93 ms without them. mallopt(3) raises
the thresholds, and has XLA's threads use the main arena, as other arenas unmap what is free (a GPT
step on the lazy device: 142 ms, then 120). Small blocks are not concerned: each thread has a cache
of its own. All of it holds for the whole process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os

from xla_dynamo.config import config

# malloc.h
_M_TRIM_THRESHOLD = -1  # free bytes at the end of the heap above which they are given back
_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3  # blocks of this size and more are mapped, and unmapped when freed

_LARGEST_KEPT_BLOCK = 2**28
_TRIM_AT_MOST = 2**31 - 1  # mallopt takes an int
_SHARE_OF_MEMORY = 8  # at most an eighth of the machine's is kept


@functools.cache
def keep_freed() -> bool:
    """Set malloc up so, once in a process, before XLA's threads start; whether it is done.

    Not where config().keep_memory is off, where the user has set malloc's own variables, and where
    the C library has no mallopt (musl).
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ)
    if not config().keep_memory or chosen or "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    with contextlib.suppress(AttributeError, OSError, ValueError):
        mallopt = ctypes.CDLL(None).mallopt
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        kept = min(_TRIM_AT_MOST, memory // _SHARE_OF_MEMORY)
        settings = {
            _M_MMAP_THRESHOLD: min(_LARGEST_KEPT_BLOCK, kept),
            _M_TRIM_THRESHOLD: kept,
            _M_ARENA_MAX: 1,
        }
        return 0 not in [mallopt(name, value) for name, value in settings.items()]
    return False
