"""Launches -> the time that the device took for each: when their results are ready."""

from __future__ import annotations

import threading
import time

from xla_dynamo.compat.recording.execution_time import Watch


class FakeArray:
    """An array that is ready when told."""

    def __init__(self) -> None:
        self.ready, self.deleted = threading.Event(), False

    def is_ready(self) -> bool:
        return self.ready.is_set()

    def is_deleted(self) -> bool:
        return self.deleted

    def block_until_ready(self) -> None:
        self.ready.wait(10)


def test_the_watch_reports_what_has_ended_in_order() -> None:
    spent: list[int] = []
    watch = Watch(spent.append)
    arrays = [FakeArray() for _ in range(3)]
    start = time.perf_counter_ns()
    for program, array in enumerate(arrays):
        watch.launched(start, array, program)
    watch.settle()
    assert spent == []
    arrays[0].ready.set()
    arrays[1].ready.set()
    watch.settle()
    assert len(spent) == 2
    arrays[2].ready.set()
    watch.settle()
    assert len(spent) == 3
    assert sum(spent) <= time.perf_counter_ns() - start


def test_a_result_that_was_given_away_shares_the_time_of_the_next() -> None:
    spent: list[int] = []
    watch = Watch(spent.append)
    first, second = FakeArray(), FakeArray()
    start = time.perf_counter_ns()
    watch.launched(start, first, 0)
    watch.launched(start, second, 1)
    first.deleted = True
    first.ready.set()
    watch.settle()
    assert spent == []
    second.ready.set()
    watch.settle()
    assert len(spent) == 2
    assert spent[0] == spent[1]
