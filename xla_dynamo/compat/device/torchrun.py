"""Processes that torchrun has started, a replica each: they come together when a device is used.

Rank 0 starts JAX's coordination service, in a process that outlives it, and puts its address into
torchrun's store.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from torch.distributed.rendezvous import rendezvous

from xla_dynamo.backend.runtime.platforms import cpu_devices_of_each, default_platform
from xla_dynamo.compat.execution import processes
from xla_dynamo.compat.recording import devices, replicas
from xla_dynamo.compat.values import environment
from xla_dynamo.config import config
from xla_dynamo.errors import NotAvailable
from xla_dynamo.lazily import lazily

from . import replica_process

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import coordinator, job, tpu_process, tpu_slice
    from xla_dynamo.backend.runtime.tpu_slice import Slice
else:
    coordinator = lazily("xla_dynamo.backend.runtime.coordinator", globals())
    job = lazily("xla_dynamo.backend.runtime.job", globals())
    tpu_process = lazily("xla_dynamo.backend.runtime.tpu_process", globals())
    tpu_slice = lazily("xla_dynamo.backend.runtime.tpu_slice", globals())

_ADDRESS = "xla_dynamo/coordination_service"
_LEFT = "xla_dynamo/left"
_gangs: processes.Gangs | None = None
_threads = False
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def install() -> None:
    """Look for torchrun's variables at the first use of a device, or of its replicas."""
    devices.before_use.append(_join)


def begin_threads() -> processes.Gangs | None:
    """The replicas of a process that torchrun has started, where each has several CPU devices.

    Raises:
        RuntimeError: a device was used before, of which the process then has one.
    """
    global _threads
    if not _is_one_of_many() or default_platform() != "cpu" or _devices_of_each() == 1:
        return None
    if job.current() is not None and _gangs is None:
        raise RuntimeError(
            f"CPU_NUM_DEVICES, or XLA_FLAGS, gives this process {_devices_of_each()} devices, and "
            "it has used one already, as its only one: call torch_xla.launch(fn) before anything "
            "that uses a device or asks for ranks, or set CPU_NUM_DEVICES to 1."
        )
    _threads = True
    devices.prepare()
    return _gangs


def _is_one_of_many() -> bool:
    count = int(os.environ.get("WORLD_SIZE") or 1)
    return count > 1 and all(name in os.environ for name in _VARIABLES)


def _devices_of_each() -> int:
    return cpu_devices_of_each(os.environ.get("CPU_NUM_DEVICES") or "1")


def _join() -> None:
    """Make this process a replica, if torchrun has started it with others.

    Raises:
        NotAvailable: the platform has no replicas in processes, or not so many.
        ReplicaError: not all processes came.
    """
    global _gangs
    if not _is_one_of_many() or job.current() is not None:
        return
    count = int(os.environ["WORLD_SIZE"])
    of = _tpu_slice(count)
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK") or os.environ["RANK"])
    store, _, _ = next(iter(rendezvous("env://")))
    service = None
    if rank == 0:
        service = coordinator.Apart(count, config().patience, _own_address())
        store.set(_ADDRESS, service.address)
    address = store.get(_ADDRESS).decode()
    if environment.in_spmd():  # each has its devices of one program
        joint = job.start(address, rank, count, config().patience)
        if default_platform() == "tpu":
            tpu_process.connect(joint, of, local)
        else:
            joint.connect(_devices_of_each())
    elif _threads:
        joint = replica_process.join(address, rank, count, local, of, _devices_of_each())
        _gangs = processes.Gangs(devices.devices(), joint, local)
    else:
        joint = replica_process.join(address, rank, count, local, of)
        replicas.join_process(replicas.Member(processes.Processes(joint), rank, local))
    _end_together(joint, service, store)


def _tpu_slice(count: int) -> Slice | None:
    """The TPU slice whose chips are to be taken by a process each; None for other devices.

    Also None where each host has one process in SPMD mode, which takes all chips.

    Raises:
        NotAvailable: this platform has no replicas in processes, or not so many.
    """
    platform = default_platform()
    if platform == "cpu":
        return None
    if platform != "tpu":
        raise NotAvailable(
            f"torchrun started {count} processes, and on {platform} xla_dynamo runs one replica: "
            "each would train on its own. Start one, with --nproc-per-node=1."
        )
    here = int(os.environ.get("LOCAL_WORLD_SIZE") or count)
    if here == 1 and environment.in_spmd():
        return None
    of = tpu_slice.here()
    if of.devices > 1 and not environment.in_spmd():
        raise NotAvailable(
            "a TPU chip of this generation is two devices, and a process that torchrun starts is "
            "one replica: start the script without torchrun, by xmp.spawn(fn)."
        )
    if here != len(of.chips) or count != of.processes:
        raise NotAvailable(
            f"torchrun started {count} processes, {here} of them on this host. Each takes a TPU "
            f"chip, and there are {len(of.chips)} on this host, {of.processes} in its slice. Start "
            f"it with --nproc-per-node={len(of.chips)} --nnodes={len(of.hosts)}."
        )
    return of


def _own_address() -> str:
    """How the other processes reach this host."""
    master = os.environ["MASTER_ADDR"]
    return "127.0.0.1" if master in ("localhost", "127.0.0.1") else socket.gethostname()


def _end_together(joint: Any, service: Any, store: Any) -> None:
    """Have the process's exit wait for the others, unless an exception ends it.

    Who has not left when the service goes is ended by jaxlib: torchrun's store outlives it, and
    after an exception the service stays a while.
    """
    usual = sys.excepthook

    def tell(kind: Any, error: BaseException, traceback: Any) -> None:
        joint.tell(error)
        atexit.unregister(leave)
        atexit.register(joint.leave)
        usual(kind, error, traceback)

    def leave() -> None:
        replica_process.finish()
        joint.exchange("the end of the program", None)
        joint.leave()
        store.add(_LEFT, 1)
        deadline = time.monotonic() + config().patience
        while service is not None and store.add(_LEFT, 0) < joint.count:
            if time.monotonic() > deadline:
                return
            time.sleep(0.01)
        if service is not None:
            service.end()

    sys.excepthook = tell
    atexit.register(leave)
