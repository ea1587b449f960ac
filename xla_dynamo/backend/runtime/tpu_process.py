"""A process of a job that drives one TPU chip: what it does, in order, until it has its device.

all come to the job's coordination service                   job.start
each takes a port, and learns those of the others            connect
libtpu is told, and loaded: it waits for the others' libtpu
each tells which device it has: libtpu numbers them as it likes
"""

from __future__ import annotations

import os
import socket

from xla_dynamo.errors import NotAvailable

from . import pjrt, tpu_slice
from .job import Job
from .tpu_slice import Slice


def connect(joint: Job, of: Slice | None, local: int) -> None:
    """Take the chip of this host's process number `local`.

    of: None where one process drives all chips of its host, as libtpu does by itself.

    Raises:
        ReplicaError: not all processes come.
        DeviceUnavailable: libtpu cannot take the chip.
        NotAvailable: it is more, or fewer, devices than chips of its kind.
    """
    if of is not None:
        os.environ.update(tpu_slice.variables(of, local, _addresses(joint, of, local), os.environ))
    client = pjrt.device("tpu").client
    found = len(client.local_devices())
    if of is not None and found != of.devices:
        raise NotAvailable(
            f"libtpu gives the process of TPU chip {of.chips[local]} {found} devices, where "
            f"{of.devices} were expected: this generation of chips is not known here. Use one "
            "process for each host, in SPMD mode (xr.use_spmd())."
        )
    joint.take(client)


def _addresses(joint: Job, of: Slice, local: int) -> list[str]:
    """Where the libtpu of each process will be found, by task."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        address = f"{of.hosts[of.worker]}:{probe.getsockname()[1]}"
    told = dict(joint.exchange("addresses of TPU processes", (of.task(local), address)))
    return [told[task] for task in sorted(told)]
