"""Run closures in order in a worker thread: step closures, and torch_xla.utils.closures."""

from __future__ import annotations

import atexit
import os
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

Closure = Callable[[], Any]


class ClosureHandler(ABC):
    """Runs closures."""

    @abstractmethod
    def run(self, closure: Closure) -> None:
        """Run, or queue, one closure."""

    def run_all(self, closures: Iterable[Closure]) -> None:
        """Run each."""
        for closure in closures:
            self.run(closure)


class AsyncClosureHandler(ClosureHandler):
    """Runs closures in one daemon thread, at most `max_queue_size` (XLA_MAX_ASYNC_QUEUE) waiting.

    What a closure raises is raised by the next call; what waits behind it is not run.
    """

    def __init__(self, max_queue_size: int = 100) -> None:
        bound = int(os.environ.get("XLA_MAX_ASYNC_QUEUE", max_queue_size))
        self._closures: queue.Queue[Closure] = queue.Queue(bound)
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start_event_loop(self) -> None:
        """Start the thread, if it does not run."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, daemon=True, name="step closures")
            self._thread.start()
            atexit.register(self.join)

    def run(self, closure: Closure) -> None:
        """`run_all` of one."""
        self.run_all([closure])

    def run_all(self, closures: Iterable[Closure]) -> None:
        """Queue closures; blocks while too many wait.

        Raises:
            What an earlier one raised.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        for closure in closures:
            self.start_event_loop()
            self._closures.put(closure)

    def join(self) -> None:
        """Return when every queued closure has run."""
        self._closures.join()

    def _loop(self) -> None:
        while True:
            closure = self._closures.get()
            try:
                if self._error is None:
                    closure()
            except BaseException as error:
                self._error = error
            finally:
                self._closures.task_done()
