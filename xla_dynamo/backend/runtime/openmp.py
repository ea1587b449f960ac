"""The OpenMP threads of PyTorch's kernels, while XLA's programs have the cores.

After a kernel libgomp's threads wait for the next one in a loop, for some four milliseconds (LLVM's
and Intel's for 200), and take that time from a program that follows. Ending them costs 25 us,
starting them at the next kernel 50. A training step of a ConvNeXt, two cores: 91 ms, so 80.

Foreign library met here: `omp_pause_resource_all` of the OpenMP that PyTorch has loaded, by ctypes
(OpenMP 5.0, section 3.2.44; libgomp from GCC 9 on, and LLVM's).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

_SOFT = 1  # omp_pause_soft: thread-private variables and settings are kept


def end_threads() -> None:
    """End the threads that wait for this thread's next kernel; that one starts new ones."""
    _pause()(_SOFT)


@functools.cache
def _pause() -> Callable[[int], int]:
    for path in _libraries():
        try:
            return ctypes.CDLL(path).omp_pause_resource_all
        except (OSError, AttributeError):  # of another process's view, or older
            continue
    return lambda kind: kind


def _libraries() -> list[str]:
    """The OpenMP libraries that are loaded, by path."""
    with open("/proc/self/maps") as lines:
        paths = {line.split(maxsplit=5)[-1].strip() for line in lines}
    names = ("libgomp", "libiomp", "libomp")
    return sorted(p for p in paths if p.rpartition("/")[2].startswith(names))
