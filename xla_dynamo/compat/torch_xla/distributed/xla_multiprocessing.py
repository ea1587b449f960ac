"""xmp.spawn calls the script's function in this process, as replica 0 of 1.

A process has one replica, so nothing is spawned: any `nprocs` and `start_method` are accepted, and
a script that asks for more than one replica gets one message about it. A process group that the
function makes ends with it, as it would with a spawned process.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")

_RANK = 0


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> SpawnContext | None:
    """Call `fn(0, *args)`.

    Args:
        fn: the script's function of (index, *args).
        nprocs: how many replicas the script wants; there is one.
        join: whether to return when `fn` is done; else it runs in a thread.
        daemon: whether that thread may be cut short when the program ends.
        start_method: accepted; no process is started.

    Returns:
        With join, None; else what waits for `fn`.

    Raises:
        What `fn` raises, as it is.
    """
    if nprocs is not None and nprocs != 1:
        _say_one_replica(nprocs)
    if join:
        run_replica(fn, _RANK, *args)
        return None
    return SpawnContext(functools.partial(run_replica, fn, _RANK, *args), daemon)


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
        self._lock = threading.Lock()

    def to(self, device: Any) -> torch.nn.Module:
        """The model, on `device`."""
        with self._lock:
            return self._model.to(device)


class MpSerialExecutor:
    """Runs functions one at a time, such as the download of a dataset."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def run(self, fn: Callable[[], T]) -> T:
        """What `fn` returns."""
        with self._lock:
            return fn()


def create_optimized_replica_groups() -> list[list[int]] | None:
    """None: with one replica no grouping is better than another."""
    return None
