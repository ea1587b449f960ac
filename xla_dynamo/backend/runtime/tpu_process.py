"""A process of a job that drives one TPU chip: what it does, in order, until it has its device.

all come to the job's coordination service                   job.start
each takes a port, and learns those of the others            connect
libtpu is told, and loaded: it waits for the others' libtpu
each tells which device it has: libtpu numbers them as it likes
"""

from __future__ import annotations

import os
import socket

from . import pjrt, tpu_slice
from .job import Job
from .tpu_slice import Slice


def connect(joint: Job, of: Slice | None, local: int) -> None:
    """Take the chip of this host's process number `local`.

    of: None where one process drives all chips of its host, as libtpu does by itself.

    Raises:
        ReplicaError: not all processes come.
        DeviceUnavailable: libtpu cannot take the chip.
    """
    if of is not None:
        os.environ.update(tpu_slice.variables(of, local, _addresses(joint, of, local), os.environ))
    joint.take(pjrt.device("tpu").client)


def _addresses(joint: Job, of: Slice, local: int) -> list[str]:
    """Where the libtpu of each process will be found, by task."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        address = f"{of.hosts[of.worker]}:{probe.getsockname()[1]}"
    told = dict(joint.exchange("addresses of TPU processes", (of.task(local), address)))
    return [told[task] for task in sorted(told)]
