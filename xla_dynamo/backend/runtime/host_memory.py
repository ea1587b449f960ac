"""Freed host memory stays with the process, where glibc would give each step's back to the kernel.

A program's results are new buffers, freed a step later. glibc returns blocks of that size to the
kernel at once, so that every step takes fresh pages, each zeroed at its first touch: a ResNet-18
training step had 34,000 page faults and took 118 ms, against 93 ms without them. mallopt(3) raises
the thresholds, for the whole process.

It also has arenas: threads that share one wait for each other. Where XLA's programs do all the
work there is one, the main arena, as others unmap blocks of 64 MB when they are freed (a GPT step
on the lazy device has 32,000 faults by that: 289 ms, so 243). With kernels of PyTorch's there is
one for each of their threads, which take and free workspace of their own at each small product
(an LSTM on the lazy device: 55 ms, so 47). Small blocks are not concerned: each thread has a cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os

import torch

from xla_dynamo.config import config

# malloc.h
_M_TRIM_THRESHOLD = -1  # free bytes at the end of the heap above which they are given back
_M_ARENA_MAX = -8  # further threads share
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
            _M_ARENA_MAX: 1 if config().cpu_kernels == "xla" else torch.get_num_threads(),
        }
        return 0 not in [mallopt(name, value) for name, value in settings.items()]
    return False
