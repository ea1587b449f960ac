"""A cache of bounded size: what was added first makes room for what is new.

A process that compiles without end must not grow without end. A hit costs what it costs in a dict;
where the latest use should count, the reader says so by `move_to_end(key)`.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(OrderedDict[K, V]):
    """A dict that forgets its oldest entries beyond `capacity`; threads may share it.

    >>> cache = Bounded(2)
    >>> cache["a"], cache["b"], cache["c"] = 1, 2, 3
    >>> list(cache)
    ['b', 'c']
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self.capacity:
            with suppress(KeyError):  # another thread was first
                self.popitem(last=False)
