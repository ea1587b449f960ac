"""Replicas in threads of this process: one for each device."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from xla_dynamo.compat.execution import sync
from xla_dynamo.compat.execution.gang import Gang
from xla_dynamo.compat.recording import devices, pending, replicas
from xla_dynamo.compat.values import torch_private
from xla_dynamo.config import config
from xla_dynamo.errors import ReplicaError

from . import step_barrier

_LOOK = 0.5  # seconds
_NAME = "xla_replica:"


@dataclass
class ThreadResult:
    """What a thread's function returned, or raised."""

    result: Any = None
    error: BaseException | None = None


def run(
    gang: Gang,
    places: list[torch.device],
    call: Callable[[int], Any],
    *,
    in_turn: bool = False,
) -> list[Any]:
    """What `call(i)` returns in a thread for each of `places`, whose default device it is.

    in_turn: see `Gang.join`.

    Raises:
        What a call raises, after printing it to stderr. A thread that goes on for the patience of
            XLA_DYNAMO_PATIENCE after that is left alone, as no thread can be ended from outside.
        ReplicaError: such a thread, of an earlier run, has not ended.
    """
    _check_none_is_left()
    gang.open()
    outcomes = [ThreadResult() for _ in places]

    def one(index: int) -> None:
        place, rank = places[index], gang.first + index
        devices.set_default(place)
        gang.join(rank, in_turn=in_turn)
        try:
            with replicas.joined(place.index, replicas.Member(gang, rank, gang.first_here + index)):
                outcomes[index].result = call(index)
                if pending.trace(place).state.collective:
                    step_barrier.mark_step()  # while the others are still there
            gang.leave(rank)
        except BaseException as error:
            outcomes[index].error = error
            gang.fail(rank, error)
            ended = error if isinstance(error, Exception) else RuntimeError(repr(error))
            sync.give_up(pending.trace(place), ended)  # else the next run would launch it
            if not isinstance(error, ReplicaError):
                print(f"Exception in model function for device={place}: {error}", file=sys.stderr)
                traceback.print_exc(limit=16, file=sys.stderr)

    def in_thread(index: int) -> None:
        with torch_private.calls_beside_traces():
            one(index)

    if len(places) == 1:
        one(0)  # in this thread, which Ctrl-C reaches
    else:
        threads = [
            threading.Thread(target=in_thread, args=(index,), daemon=True, name=f"{_NAME}{index}")
            for index in range(len(places))
        ]
        with torch_private.process_groups_of_threads(), torch_private.traces_of_threads():
            for thread in threads:
                thread.start()
            _join(threads, outcomes)
    errors = [each.error for each in outcomes if each.error is not None]
    if errors:
        causes = [e for e in errors if not isinstance(e, ReplicaError)]
        raise (causes or errors)[0]
    return [each.result for each in outcomes]


def _check_none_is_left() -> None:
    left = [each.name for each in threading.enumerate() if each.name.startswith(_NAME)]
    if left:
        raise ReplicaError(
            f"threads of replicas that failed before are still running ({', '.join(left)}), and no "
            "thread can be ended from outside: start a new process."
        )


def _join(threads: list[threading.Thread], outcomes: list[ThreadResult]) -> None:
    """Wait for all threads; but where one has failed, not for ever."""
    failed: float | None = None
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK)
            if failed is None and any(each.error is not None for each in outcomes):
                failed = time.monotonic()
            if failed is not None and time.monotonic() - failed > config().patience:
                break
