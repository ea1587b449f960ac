"""Measures how long the device works on each program, although launches return at once.

A thread for each device waits for one result of every launch. A program counts from its launch, or
from the end of the one before it, to the time when its result is there: the sum is never more than
the time that passed.

A CPU may be done with a launch before one that came earlier: each is reported when it is ready.

While the main thread runs Python, the waiting thread gets the interpreter's lock late, by a switch
interval (5 ms) for each time that it went to sleep for it. Such an end is known within bounds; in
these, the program is taken to have lasted as long as when its end was seen in time.

Waking the thread costs the launching one some 60 us, so of the launches of a short program only
some are timed, and the others count as the last of those.

The exit of the process waits for the device, as torch_xla's does: a thread that comes back from
C++ while Python goes away is ended in the middle of it (before 3.14), and the process aborts.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import resource
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xla_dynamo.interrupts import ending_the_process

_UNKNOWN = 2**63  # ns: how late an end was seen
_KEPT = 10_000  # programs whose last duration is remembered
_SHORT = 2_000_000  # ns: a program that is timed once in so many launches:
_EACH = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Launch:
    """A launch whose end nobody has seen yet: `result` is ready then."""

    start: int
    result: Any
    program: int

    def has_ended(self) -> bool:
        return self.result.is_deleted() or self.result.is_ready()


class Watch:
    """Measures the launches of one device, which run one after another."""

    def __init__(self, report: Callable[[int, int, int], None]) -> None:
        """`report` is told of each launch that ended: its program, how many nanoseconds it took,
        and when it ended (perf_counter_ns).
        """
        self._report = report
        self._pending: deque[_Launch] = deque()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0  # when the device was done with the last one
        self._first = 0  # start of the first launch since, if it is not timed
        self._skipped = 0  # launches since that are not timed
        self._unseen: Counter[int] = Counter()  # programs of those whose end nobody saw since
        self._usual: dict[int, int] = {}  # program -> its last duration that was seen in time
        self._thread: threading.Thread | None = None

    def launched(self, start: int, result: Any, program: int) -> None:
        """A program that gives the array `result` was launched at `start` (perf_counter_ns)."""
        usual = self._usual.get(program, _SHORT)
        if usual < _SHORT and self._skipped + 1 < _EACH and not self._pending:
            self._first = self._first or start
            self._skipped += 1
            self._report(program, usual, start + usual)
            return
        launch = _Launch(start, result, program)
        self._pending.append(launch)
        if self._thread is None:
            self._start()
        self._queue.put(launch)

    def settle(self) -> None:
        """Report what has ended by now; waits for nothing."""
        with self._lock:
            for launch in list(self._pending):
                if launch.has_ended():
                    self._end(launch, late=_UNKNOWN)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, daemon=True, name="xla launches")
                thread.start()
                self._thread = thread
                atexit.register(self._stop)

    def _stop(self) -> None:
        self._queue.put(None)
        with ending_the_process():
            if self._thread is not None:
                self._thread.join()
            time.sleep(self._skipped * _SHORT * 1e-9)  # short ones that nobody waited for

    def _run(self) -> None:
        while True:
            idle, before = self._queue.empty(), _sleeps()
            launch: _Launch | None = self._queue.get()
            if launch is None:
                return
            late = _UNKNOWN  # it may have ended while this thread was at the one before it
            if not launch.has_ended():
                idle, before = True, _sleeps()
            # If it was given away since, or failed, who reads a result is told.
            with contextlib.suppress(Exception):
                launch.result.block_until_ready()
            if idle:
                late = (_sleeps() - before - 1) * int(sys.getswitchinterval() * 1.1e9)
            with self._lock:
                if launch in self._pending:  # `settle` may have seen it
                    self._end(launch, late)
            del launch

    def _end(self, launch: _Launch, late: int) -> None:
        """Take a launch off the list, whose end is seen up to `late` ns late; the lock is held."""
        now = time.perf_counter_ns()
        self._pending.remove(launch)
        start, result, program = launch.start, launch.result, launch.program
        self._first = self._first or start
        if result.is_deleted():  # the next launch has taken its memory over
            self._unseen[program] += 1
            return
        # It has waited for those before it: no program took longer than its share of the time.
        share = (now - max(self._first, self._free)) // (self._skipped + self._unseen.total() + 1)
        spent = max(min(share, now - max(start, self._free)), 0)
        if late > 0:
            usual = self._usual.get(program, spent)
            now -= spent
            spent = min(max(usual, spent - late), spent)
            now += spent
        elif len(self._usual) < _KEPT:
            self._usual[program] = spent
        left = self._unseen.total()
        for each in self._unseen.elements():
            self._report(each, spent, now - left * spent)
            left -= 1
        self._report(program, spent, now)
        self._first = self._skipped = 0
        self._unseen.clear()
        self._free = now


def _sleeps() -> int:
    """How often the calling thread has slept."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
