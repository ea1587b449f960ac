"""Numbers without end, of which a bounded part is kept: each n-th, or sums and the last ones."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

RECENT = 1024  # the last ones, of which medians are


class Thinned(Generic[T]):
    """A sequence without end of which up to `capacity` items are kept: each `every`-th."""

    def __init__(self, capacity: int) -> None:
        self.items: list[T] = []
        self.every = 1
        self._capacity = capacity
        self._count = 0

    def add(self, item: T) -> None:
        """Keep an item, or not."""
        if self._count % self.every == 0:
            if len(self.items) == self._capacity:
                del self.items[1::2]
                self.every *= 2
                if self._count % self.every:
                    self._count += 1
                    return
            self.items.append(item)
        self._count += 1


@dataclass(slots=True)
class Times:
    """Nanoseconds of runs."""

    count: int = 0
    total: int = 0
    slowest: int = 0
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, nanoseconds: int) -> None:
        """One more."""
        self.count += 1
        self.total += nanoseconds
        self.slowest = max(self.slowest, nanoseconds)
        self.recent.append(nanoseconds)

    def median(self) -> float:
        """That of the last ones."""
        return statistics.median(self.recent) if self.recent else 0.0
