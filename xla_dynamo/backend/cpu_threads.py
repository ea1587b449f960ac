"""The threads of XLA:CPU's programs: as many as PyTorch's kernels take, each on a core of its own.

XLA takes a thread for each core that the process may run on. Who gives PyTorch fewer threads
(`torch.set_num_threads`, OMP_NUM_THREADS, MKL_NUM_THREADS) gives them to both.

Two threads that wake together are left on one core by Linux, with another one idle, for
milliseconds: on a machine that is busy it does not look for idle cores. On two cores (Linux 6.18),
the training step of an LSTM takes 29 ms so, 26 with its threads bound, and two processes that train
a GPT 1.7 steps a second each, 3.2 bound. With many cores there are others that are idle: left to
Linux.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from xla_dynamo.config import config

_MOST_CORES = 4
_NAME = "tf_XLAEigen"  # of the threads that take parts of a program
_TASKS = Path("/proc/self/task")


def fixed() -> int | None:
    """How many threads PyTorch was given, if fewer than there are cores."""
    threads = torch.get_num_threads()
    return threads if threads < _cores() else None


def _cores() -> int:
    """The cores that this process may run on; what PyTorch takes by default is one thread each."""
    topology = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    found = set()
    for cpu in os.sched_getaffinity(0):
        try:
            found.add(Path(topology.format(cpu)).read_text())
        except OSError:
            found.add(str(cpu))
    return len(found)


@contextmanager
def bound() -> Iterator[None]:
    """A pool that starts within, of a thread for each core, has each thread stay on its own core.

    Not where config().bind_threads is off, and not on more cores than `_MOST_CORES`.
    """
    before = _pool()
    yield
    cpus, threads = sorted(os.sched_getaffinity(0)), sorted(_pool() - before)
    if not (config().bind_threads and len(cpus) == len(threads) <= _MOST_CORES):
        return
    with contextlib.suppress(OSError):  # a system that forbids it: only slower
        for thread, cpu in zip(threads, cpus, strict=True):
            os.sched_setaffinity(thread, {cpu})


def _pool() -> set[int]:
    """The threads of XLA's pools in this process."""
    found = set()
    for task in _TASKS.iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if (task / "comm").read_text().strip() == _NAME:
                found.add(int(task.name))
    return found
