"""A replica in a process of its own: what xmp.spawn starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch.distributed as dist

from xla_dynamo.backend import observers
from xla_dynamo.backend.runtime.platforms import cpu_devices_of_each
from xla_dynamo.compat.execution import processes
from xla_dynamo.compat.execution.gang import Gang
from xla_dynamo.compat.recording import devices, pending, replicas
from xla_dynamo.config import config
from xla_dynamo.errors import ReplicaError
from xla_dynamo.lazily import lazily

from . import replica_threads, step_barrier

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import job, tpu_process
    from xla_dynamo.backend.runtime.tpu_slice import Slice
else:
    job = lazily("xla_dynamo.backend.runtime.job", globals())
    tpu_process = lazily("xla_dynamo.backend.runtime.tpu_process", globals())

T = TypeVar("T")

_VICTIM_WAITS = 1.0  # seconds: the process whose error it was ends first, and is reported


def main(
    local: int, fn: Callable[..., Any], args: Any, addresses: Any, count: int, of: Slice | None
) -> None:
    """Call `fn(rank, *args)` as a replica of `count`: a process from its start to its end.

    local: its number among those of this host.
    addresses: a queue, which gives that of the coordination service.
    of: the TPU slice of this host.
    """
    number = local if of is None else of.task(local)
    with observers.replica(number):
        _be_replica(number, local, fn, args, addresses.get(), count, of)


def _be_replica(
    number: int,
    local: int,
    fn: Callable[..., Any],
    args: Any,
    address: str,
    count: int,
    of: Slice | None,
) -> None:
    each = cpu_devices_of_each() if of is None else of.devices
    joint = join(address, number, count, local, of, each)
    try:
        if each > 1:
            gang = processes.Gangs(devices.devices(), joint, local)
            run_replicas(gang, fn, *args)
        else:
            replicas.join_process(replicas.Member(processes.Processes(joint), number, local))
            run_replica(fn, number, *args)
        finish()
    except BaseException as error:
        joint.tell(error)
        if isinstance(error, ReplicaError):
            time.sleep(_VICTIM_WAITS)
        raise
    joint.leave()


def join(
    address: str, number: int, count: int, local: int, of: Slice | None, each: int = 1
) -> job.Job:
    """Make this process number `number` of `count`, with devices of its own.

    address: that of the job's coordination service. local, of: see `main`.
    each: how many devices of XLA:CPU it has.

    Raises:
        ReplicaError: not all came.
    """
    joint = job.start(address, number, count, config().patience)
    if of is None:
        joint.connect(each)
    else:
        tpu_process.connect(joint, of, local)
    return joint


def finish() -> None:
    """Launch what other replicas wait for, and wait until it is done."""
    for trace in pending.traces():
        if trace.state.collective:
            step_barrier.launch(trace.device)
    step_barrier.wait_for()


def run_replicas(gang: Gang, fn: Callable[..., Any], *args: Any) -> list[Any]:
    """`fn(rank, *args)` for each device of this process, in a thread of its own."""
    places = devices.devices()
    with _group_ends():
        return replica_threads.run(
            gang, places, lambda index: fn(gang.first + index, *args), in_turn=True
        )


def run_replica(fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The result of `fn`, after the end of the default process group, if `fn` made it."""
    with _group_ends():
        return fn(*args, **kwargs)


@contextmanager
def _group_ends() -> Iterator[None]:
    """The default process group, if it is made within, ends with it."""
    before = _has_group()
    try:
        yield
    finally:
        if _has_group() and not before:
            dist.destroy_process_group()


def _has_group() -> bool:
    return dist.is_available() and dist.is_initialized()
