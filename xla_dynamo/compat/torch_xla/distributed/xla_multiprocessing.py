"""xmp.spawn: a process for each replica, whose collectives reach the others.

The parent starts the coordination service, so that no replica is special (where a TPU slice has
several hosts, that of the first). One replica alone runs in this process.
"""

from __future__ import annotations

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

from xla_dynamo.backend.runtime import openmp, tpu_chips
from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.compat.device import replica_process
from xla_dynamo.compat.device.replica_context import ReplicaContext
from xla_dynamo.compat.device.replica_process import run_replica as run_replica
from xla_dynamo.compat.execution.gang import Gang
from xla_dynamo.compat.recording import devices, pending
from xla_dynamo.config import config
from xla_dynamo.lazily import lazily

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import coordinator, tpu_slice
    from xla_dynamo.backend.runtime.tpu_slice import Slice
else:
    coordinator = lazily("xla_dynamo.backend.runtime.coordinator", globals())
    tpu_slice = lazily("xla_dynamo.backend.runtime.tpu_slice", globals())

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

    With XLA_FLAGS=--xla_force_host_platform_device_count=2, say, each has two CPU devices, which
    are replicas in threads.

    On TPUs it is called for each chip of this host, and of the other hosts of its slice, on each of
    which the script has to be started.

    Args:
        fn: the script's function of (index, *args).
        nprocs: how many replicas; default: CPU_NUM_DEVICES on a CPU, all chips of this host on a
            TPU, or 1. With one, `fn` is called in this process.
        join: whether to return when all are done.
        daemon: whether they end with this process.
        start_method: "spawn", "fork" or "forkserver".

    Returns:
        With join, None; else torch.multiprocessing's context, or for one replica a like one.

    Raises:
        torch.multiprocessing.ProcessRaisedException: a process raised; with its traceback.
        torch.multiprocessing.ProcessExitedException: one died.
        RuntimeError: this process has used a device, and would be forked, or has the TPU's chips.
        ValueError: `nprocs` are some of a TPU's chips, not one or all.
        NotAvailable: it is not known how the TPU's chips are arranged.
        What `fn` raises, as it is, where it is called here.
    """
    platform, of = default_platform(), None
    count = nprocs or int(os.environ.get("CPU_NUM_DEVICES") or 1)
    if platform == "tpu":
        of = _tpu_slice(nprocs)
        count = 1 if of is None else len(of.chips)
    elif platform != "cpu":
        count = 1
    if nprocs is not None and nprocs > count:
        _say_fewer(nprocs, count)
    if count > 1 or of is not None:
        return _start(fn, tuple(args), count, join, daemon, start_method, of)
    if join:
        run_replica(fn, 0, *args)
        return None
    return SpawnContext(functools.partial(run_replica, fn, 0, *args), daemon)


def spawn_threads(fn: Callable[..., Any], args: Sequence[Any] = ()) -> list[Any]:
    """`fn(rank, *args)` in a thread for each CPU device of this process, which are replicas.

    Raises:
        What `fn` raises.
    """
    if default_platform() != "cpu" or int(os.environ.get("CPU_NUM_DEVICES") or 1) == 1:
        return [run_replica(fn, 0, *args)]
    return replica_process.run_replicas(Gang(devices.devices()), fn, *args)


def _tpu_slice(nprocs: int | None) -> Slice | None:
    """The slice of which a process for each chip is started here; None for one in this process.

    Raises:
        ValueError: `nprocs` are some of this host's chips.
        NotAvailable: how they are arranged is not known.
    """
    if nprocs == 1 or tpu_chips.here().count < 2:
        return None
    of = tpu_slice.here()
    if nprocs is not None and nprocs < len(of.chips):
        raise ValueError(
            f"xmp.spawn(nprocs={nprocs}): this host has {len(of.chips)} TPU chips, and the "
            f"processes take one each: nprocs is 1, {len(of.chips)} or None, or TPU_VISIBLE_CHIPS "
            "says which chips are to be used."
        )
    return of


def _start(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    count: int,
    join: bool,
    daemon: bool,
    start_method: str,
    of: Slice | None,
) -> Any:
    if pending.runtime_is_used() and of is not None:
        raise RuntimeError(
            "This process has used an xla device, and so it has the TPU's chips, which processes "
            "of their own need. Do not use one before xmp.spawn."
        )
    if start_method == "fork" and pending.runtime_is_used():
        raise RuntimeError(
            "This process has used an xla device, and cannot be forked any more. Do not use one "
            "before xmp.spawn, or pass start_method='spawn'."
        )
    if start_method == "fork":  # once for all
        for name in _IMPORTED_BY_EACH:
            importlib.import_module(name)
        openmp.end_threads()  # a child would wait for them, whom it has not, in its first kernel
    addresses = mp.get_context(start_method).SimpleQueue()
    given = fn, args, addresses, count if of is None else of.processes, of
    _running[:] = [before for before in _running if not before.reap()]
    started: Any = start_processes(
        replica_process.main, given, count, join=False, daemon=daemon, start_method=start_method
    )
    address, service = _serve(count, of)
    context = ReplicaContext(started, service)
    for _ in range(count):
        addresses.put(address)
    if not join:
        _running.append(context)
        return context
    try:
        while not context.join():
            pass
    except BaseException:
        context.stop()
        raise
    return None


def _serve(count: int, of: Slice | None) -> tuple[str, coordinator.Apart | None]:
    """The address of the job's coordination service, and the service, where it is here."""
    if of is None or len(of.hosts) == 1:
        service = coordinator.Apart(count, config().patience, grace=_GRACE)
        return service.address, service
    if of.worker:
        return f"{of.hosts[0]}:{_PORT}", None
    service = coordinator.Apart(of.processes, config().patience, of.hosts[0], _PORT)
    return service.address, service


_PORT = 8482  # of the first host, where there are several; jax.distributed takes it, too
_GRACE = 2  # seconds, in which children end if this process is killed
_IMPORTED_BY_EACH = (
    "xla_dynamo.backend.executable.device_launch",
    "xla_dynamo.backend.lowering.rules",
    "xla_dynamo.compat.execution.trace_to_fx",
    "xla_dynamo.compat.execution.recompile_reason",
)
_running: list[ReplicaContext] = []  # a script need not keep them


@functools.cache
def _say_fewer(nprocs: int, count: int) -> None:
    runs = "one replica, in this process" if count == 1 else f"{count} replicas, one for each chip"
    print(f"xla_dynamo: xmp.spawn(nprocs={nprocs}) runs {runs}.", file=sys.stderr, flush=True)


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
