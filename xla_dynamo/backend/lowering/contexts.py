"""MLIR contexts that serve for many programs.

To make torch-mlir's context and its pass managers, and jaxlib's context, took a third of the time
to compile a small program (16 of 48 ms). A context keeps each type, constant and location that it
has ever seen, so that a new one takes its place after some megabytes of programs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")
_MOST_BYTES = 4 << 20


class OfThread(threading.local, Generic[T]):
    """What `make` makes around a context: one at a time, and one for each thread.

    MLIR allows one thread at a time to load dialects into a context, and passes do so.
    """

    def __init__(self, make: Callable[[], T], most_bytes: int = _MOST_BYTES) -> None:
        self._make = make
        self._most_bytes = most_bytes
        self.drop()

    def get(self) -> T:
        """The present one."""
        if self._made is None or self._bytes > self._most_bytes:
            self._made, self._bytes = self._make(), 0
        return self._made

    def count(self, size: int) -> None:
        """A program of `size` bytes has come into it."""
        self._bytes += size

    @contextmanager
    def dropped_on_error(self) -> Iterator[None]:
        """The next `get` makes a new one, if something fails within."""
        try:
            yield
        except Exception:
            self.drop()
            raise

    def drop(self) -> None:
        """The next `get` makes a new one: something failed in it."""
        self._made: T | None = None
        self._bytes = 0
