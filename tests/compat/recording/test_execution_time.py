"""Launches -> the time that the device took for each: when their results are ready."""

from __future__ import annotations

import signal
import subprocess
import sys
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
    watch = Watch(lambda program, nanoseconds, end: spent.append(nanoseconds))
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


def test_an_end_is_seen_before_that_of_an_earlier_launch() -> None:
    ended: list[int] = []
    watch = Watch(lambda program, nanoseconds, end: ended.append(program))
    arrays = [FakeArray() for _ in range(3)]
    for program, array in enumerate(arrays):
        watch.launched(time.perf_counter_ns(), array, program)
    arrays[2].ready.set()
    watch.settle()
    assert ended == [2]
    arrays[0].ready.set()
    arrays[1].ready.set()
    watch.settle()
    assert ended == [2, 0, 1]


def test_a_result_that_was_given_away_shares_the_time_of_the_next() -> None:
    spent: list[int] = []
    watch = Watch(lambda program, nanoseconds, end: spent.append(nanoseconds))
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


_PENDING = """
import signal
import threading
import time

from xla_dynamo.compat.recording.execution_time import Watch

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it


class Pending:
    def is_ready(self):
        return False

    is_deleted = is_ready

    def block_until_ready(self):
        print("waits", flush=True)
        time.sleep({seconds})
        print("ready", flush=True)


Watch(print).launched(1, Pending(), 0)
"""


def test_the_exit_of_the_process_waits_for_the_device() -> None:
    """However long: Python 3.11 aborts if a thread comes back from XLA after it."""
    ended = _process(_PENDING.format(seconds=5.5))
    output, _ = ended.communicate()
    assert "ready" in output
    assert ended.returncode == 0


def test_ctrl_c_ends_an_exit_that_waits_for_the_device() -> None:
    waiting = _process(_PENDING.format(seconds=60))
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "waits\n"
    time.sleep(0.5)
    waiting.send_signal(signal.SIGINT)
    assert waiting.communicate() == ("", "")
    assert waiting.returncode == -signal.SIGINT


def _process(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
