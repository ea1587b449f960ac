"""A replica in a process of its own: what xmp.spawn starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch.distributed as dist

from xla_dynamo.compat.execution import processes
from xla_dynamo.compat.recording import pending, replicas
from xla_dynamo.config import config
from xla_dynamo.errors import ReplicaError
from xla_dynamo.lazily import lazily

from . import step_barrier

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import job
else:
    job = lazily("xla_dynamo.backend.runtime.job", globals())

T = TypeVar("T")

_VICTIM_WAITS = 1.0  # seconds: the process whose error it was ends first, and is reported


def main(rank: int, fn: Callable[..., Any], args: Any, addresses: Any, count: int) -> None:
    """Call `fn(rank, *args)` as replica `rank` of `count`: a process from its start to its end.

    addresses: a queue, which gives that of the coordination service.
    """
    joint = job.start(addresses.get(), rank, count, config().patience)
    replicas.join_process(replicas.Member(processes.Processes(joint), rank))
    try:
        run_replica(fn, rank, *args)
        finish()
    except BaseException as error:
        joint.tell(error)
        if isinstance(error, ReplicaError):
            time.sleep(_VICTIM_WAITS)
        raise
    joint.leave()


def finish() -> None:
    """Launch what other replicas wait for, and wait until it is done."""
    for trace in pending.traces():
        if trace.state.collective:
            step_barrier.launch(trace.device)
    step_barrier.wait_for()


def run_replica(fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The result of `fn`, after the end of the default process group, if `fn` made it."""
    before = _has_group()
    try:
        return fn(*args, **kwargs)
    finally:
        if _has_group() and not before:
            dist.destroy_process_group()


def _has_group() -> bool:
    return dist.is_available() and dist.is_initialized()
