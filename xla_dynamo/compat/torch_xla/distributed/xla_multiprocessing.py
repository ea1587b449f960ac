"""xmp.spawn: a process for each replica, whose collectives reach the others.

The parent hosts the coordination service, so that no replica is special. It is started after the
children, as a fork with its threads would hang them. One replica alone runs in this process.
"""

from __future__ import annotations

import collections
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.multiprocessing as mp
from torch.multiprocessing.spawn import start_processes

from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.compat.device import replica_process
from xla_dynamo.compat.device.replica_process import run_replica as run_replica
from xla_dynamo.compat.recording import pending
from xla_dynamo.config import config
from xla_dynamo.lazily import lazily

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import job
else:
    job = lazily("xla_dynamo.backend.runtime.job", globals())

T = TypeVar("T")


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """Call `fn(rank, *args)` in `nprocs` processes, each a replica with a device of its own.

    Args:
        fn: the script's function of (index, *args).
        nprocs: how many replicas; default: CPU_NUM_DEVICES on a CPU, or 1. With one, `fn` is called
            in this process.
        join: whether to return when all are done.
        daemon: whether they end with this process.
        start_method: "spawn", "fork" or "forkserver".

    Returns:
        With join, None; else torch.multiprocessing's context, or for one replica a like one.

    Raises:
        torch.multiprocessing.ProcessRaisedException: a process raised; with its traceback.
        torch.multiprocessing.ProcessExitedException: one died.
        RuntimeError: this process has used a device, and would be forked.
        What `fn` raises, as it is, where it is called here.
    """
    count = nprocs or int(os.environ.get("CPU_NUM_DEVICES") or 1)
    if count > 1 and default_platform() != "cpu":
        _say_one_replica(count)
    elif count > 1:
        return _start(fn, tuple(args), count, join, daemon, start_method)
    if join:
        run_replica(fn, 0, *args)
        return None
    return SpawnContext(functools.partial(run_replica, fn, 0, *args), daemon)


def _start(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    count: int,
    join: bool,
    daemon: bool,
    start_method: str,
) -> Any:
    if start_method == "fork" and pending.runtime_is_used():
        raise RuntimeError(
            "This process has used an xla device, and cannot be forked any more. Do not use one "
            "before xmp.spawn, or pass start_method='spawn'."
        )
    if start_method == "fork":  # once for all
        for name in _IMPORTED_BY_EACH:
            importlib.import_module(name)
    addresses = mp.get_context(start_method).SimpleQueue()
    given = fn, args, addresses, count
    context: Any = start_processes(
        replica_process.main, given, count, join=False, daemon=daemon, start_method=start_method
    )
    context.service = job.Service(count, config().patience)  # lives as long as the context
    for _ in range(count):
        addresses.put(context.service.address)
    if not join:
        _running.append(context)
        return context
    try:
        while not context.join():
            pass
    except BaseException:
        for process in context.processes:
            if process.is_alive():
                process.terminate()
        raise
    return None


_IMPORTED_BY_EACH = (
    "xla_dynamo.backend.executable.device_launch",
    "xla_dynamo.backend.lowering.rules",
    "xla_dynamo.compat.execution.trace_to_fx",
    "xla_dynamo.compat.execution.recompile_reason",
)
# Contexts that a script need not keep.
_running: collections.deque[Any] = collections.deque(maxlen=16)


@functools.cache
def _say_one_replica(nprocs: int) -> None:
    print(
        f"xla_dynamo: xmp.spawn(nprocs={nprocs}) runs one replica, in this process.",
        file=sys.stderr,
        flush=True,
    )


class SpawnContext:
    """A function running in a thread; stands for torch.multiprocessing's context."""

    def __init__(self, call: Callable[[], Any], daemon: bool) -> None:
        self.processes: list[Any] = []
        self._error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=daemon, name="xla_spawn")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._error = error
            raise  # so that it is printed even if nobody joins

    def pids(self) -> list[int]:
        """No process was started."""
        return []

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait; whether the function is done. Raises what it raised."""
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()


class MpModelWrapper:
    """Moves a model that processes share to a device, one process at a time."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._lock = mp.Lock()

    def to(self, device: Any) -> torch.nn.Module:
        """The model, on `device`."""
        with self._lock:
            return self._model.to(device)


class MpSerialExecutor:
    """Runs functions in one process at a time, such as the download of a dataset."""

    def __init__(self) -> None:
        self._lock = mp.Lock()

    def run(self, fn: Callable[[], T]) -> T:
        """What `fn` returns."""
        with self._lock:
            return fn()


def create_optimized_replica_groups() -> list[list[int]] | None:
    """None: with one replica no grouping is better than another."""
    return None
