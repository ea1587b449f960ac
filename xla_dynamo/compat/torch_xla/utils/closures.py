"""Run step closures at once, or in order in a worker thread."""

from __future__ import annotations

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
    """Runs closures in one thread, at most `max_queue_size` (XLA_MAX_ASYNC_QUEUE) waiting.

    What a closure raises is raised by the next call of run().
    """

    def __init__(self, max_queue_size: int = 100) -> None:
        bound = int(os.environ.get("XLA_MAX_ASYNC_QUEUE", max_queue_size))
        self._closures: queue.Queue[Closure] = queue.Queue(bound)
        self._errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start_event_loop(self) -> None:
        """Start the thread, if it does not run."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, daemon=True, name="xla_closures")
            self._thread.start()

    def _loop(self) -> None:
        while True:
            closure = self._closures.get()
            try:
                closure()
            except BaseException as error:
                self._errors.put(error)
            finally:
                self._closures.task_done()

    def run(self, closure: Closure) -> None:
        """Queue a closure.

        Raises:
            What an earlier one raised.
        """
        if not self._errors.empty():
            raise self._errors.get()
        self.start_event_loop()
        self._closures.put(closure)
