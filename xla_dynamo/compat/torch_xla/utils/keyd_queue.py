"""Bounded queues between the threads of a data loader; either end can close them."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any


class QueueBase:
    """What the two queues share: a bound, and being closed.

    Args:
        maxsize: how many items it holds; `put` waits for room.
    """

    def __init__(self, maxsize: int = 1024) -> None:
        self._maxsize = maxsize
        self._changed = threading.Condition()
        self._close_read = False
        self._close_write = False

    def max_size(self) -> int:
        """How many items it holds."""
        return self._maxsize

    @property
    def closed(self) -> bool:
        """Whether nobody reads any more."""
        return self._close_read

    def close(self) -> None:
        """Nobody reads any more: `put` drops its item, `get` gives what is left, then None."""
        with self._changed:
            self._close_read = self._close_write = True
            self._changed.notify_all()

    def close_write(self) -> None:
        """Nobody writes any more: `get` gives what is left, then None."""
        with self._changed:
            self._close_write = True
            self._changed.notify_all()

    def _put(self, has_room: Callable[[], bool], insert: Callable[[], Any]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._close_read or has_room())
            if not self._close_read:
                insert()
                self._changed.notify_all()

    def _get(self, ready: Callable[[], bool], take: Callable[[], Any]) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._close_write or ready())
            item = take() if ready() else None
            self._changed.notify_all()
            return item


class Queue(QueueBase):
    """First in, first out."""

    def __init__(self, maxsize: int = 1024) -> None:
        super().__init__(maxsize)
        self._items: collections.deque[Any] = collections.deque()

    def put(self, item: Any) -> None:
        """Append `item`, when there is room."""
        self._put(lambda: len(self._items) < self._maxsize, lambda: self._items.append(item))

    def get(self) -> Any:
        """The oldest item, when there is one; None at the end of a closed queue."""
        return self._get(lambda: bool(self._items), self._items.popleft)


class KeydQueue(QueueBase):
    """Items with keys: `get` waits for its own, whose `put` does not wait for room."""

    def __init__(self, maxsize: int = 1024) -> None:
        super().__init__(maxsize)
        self._items: dict[Any, Any] = {}
        self._awaited: collections.Counter[Any] = collections.Counter()

    def put(self, key: Any, item: Any) -> None:
        """Store `item`, when there is room or someone waits for it."""
        self._put(
            lambda: len(self._items) < self._maxsize or self._awaited[key] > 0,
            lambda: self._items.update({key: item}),
        )

    def get(self, key: Any) -> Any:
        """The item of `key`, when it is there; None if a closed queue lacks it."""
        with self._changed:
            self._awaited[key] += 1
            self._changed.notify_all()
            try:
                return self._get(lambda: key in self._items, lambda: self._items.pop(key))
            finally:
                self._awaited[key] -= 1
