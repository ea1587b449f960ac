"""Replicas in threads of this process: one for each device."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from xla_dynamo.compat.execution import sync
from xla_dynamo.compat.execution.gang import Gang
from xla_dynamo.compat.recording import devices, pending, replicas
from xla_dynamo.compat.values import torch_private
from xla_dynamo.errors import ReplicaError

from . import step_barrier


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
        What a call raises, after printing it to stderr.
    """
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

    if len(places) == 1:
        one(0)  # in this thread, which Ctrl-C reaches
    else:
        threads = [
            threading.Thread(target=one, args=(index,), daemon=True, name=f"xla_replica:{index}")
            for index in range(len(places))
        ]
        with torch_private.process_groups_of_threads():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    errors = [each.error for each in outcomes if each.error is not None]
    if errors:
        causes = [e for e in errors if not isinstance(e, ReplicaError)]
        raise (causes or errors)[0]
    return [each.result for each in outcomes]
