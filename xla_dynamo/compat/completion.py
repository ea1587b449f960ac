"""Launches that return at once -> how long the device really worked on each.

A thread for each device waits for one result of every launch. A program counts from its launch, or
from the end of the one before it, to the time when its result is there: the sum is never more than
the time that passed.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

_LAST_WAIT = 5.0  # seconds that the exit of the process waits for the device


class Watch:
    """Measures the launches of one device, which run one after another."""

    def __init__(self, report: Callable[[int], None]) -> None:
        """`report` is given the nanoseconds of each launch that ended, in order."""
        self._report = report
        self._pending: deque[tuple[int, Any]] = deque()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0  # when the device was done with the last one
        self._unseen: list[int] = []  # starts of launches whose end nobody saw
        self._thread: threading.Thread | None = None

    def launched(self, start: int, result: Any) -> None:
        """A program that gives the array `result` was launched at `start` (perf_counter_ns)."""
        self._pending.append((start, result))
        if self._thread is None:
            self._start()
        self._queue.put(result)

    def settle(self) -> None:
        """Report what has ended by now; waits for nothing."""
        with self._lock:
            while self._pending:
                result = self._pending[0][1]
                if not result.is_deleted() and not result.is_ready():
                    return
                self._end()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, daemon=True, name="xla launches")
                thread.start()
                self._thread = thread
                atexit.register(self._stop)

    def _stop(self) -> None:
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(_LAST_WAIT)

    def _run(self) -> None:
        while (result := self._queue.get()) is not None:
            # If it was given away since, or failed, who reads a result is told.
            with contextlib.suppress(Exception):
                result.block_until_ready()
            with self._lock:
                if any(pending is result for _, pending in self._pending):
                    while self._end() is not result:
                        pass
            del result

    def _end(self) -> Any:
        """Take the oldest launch off the list; the lock is held."""
        now = time.perf_counter_ns()
        start, result = self._pending.popleft()
        self._unseen.append(start)
        if not result.is_deleted():
            # A result that the next launch took over is gone: both ended when the next one did.
            spent = max(now - max(self._unseen[0], self._free), 0) // len(self._unseen)
            for _ in self._unseen:
                self._report(spent)
            self._unseen.clear()
            self._free = now
        return result
