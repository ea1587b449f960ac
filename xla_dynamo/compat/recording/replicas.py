"""Replicas in threads, as data_parallel.DataParallel starts them: how they average gradients.

Each thread trains a copy of the model on a device of its own; before an optimizer step the copies
average their gradients, through the CPU.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

_local = threading.local()


class Replicas:
    """A group of `count` threads."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._barrier = threading.Barrier(count)
        self._given: list[Any] = [None] * count

    def join(self, rank: int) -> None:
        """Make the calling thread number `rank` of this group."""
        _local.member = (self, rank)

    def leave(self) -> None:
        """The calling thread is in no group any more."""
        _local.member = None

    def exchange(self, rank: int, item: Any) -> list[Any]:
        """The items of all threads, by rank; waits for all of them.

        Raises:
            threading.BrokenBarrierError: another thread failed.
        """
        self._given[rank] = item
        self._barrier.wait()
        items = list(self._given)
        self._barrier.wait()  # nobody gives anew before all have read
        return items

    def fail(self) -> None:
        """Wake up the others: this thread will not arrive."""
        self._barrier.abort()


def count() -> int:
    """How many replicas the calling thread belongs to, itself included."""
    member = getattr(_local, "member", None)
    return 1 if member is None else member[0].count


def average(gradients: Sequence[torch.Tensor]) -> None:
    """Replace each gradient by its mean over the replicas, in place; alone, do nothing."""
    member = getattr(_local, "member", None)
    if member is None or member[0].count == 1:
        return
    group, rank = member
    shares = group.exchange(rank, [gradient.detach().cpu() for gradient in gradients])
    with torch.no_grad():
        for gradient, parts in zip(gradients, zip(*shares, strict=True), strict=True):
            gradient.copy_(torch.stack(parts).mean(0))
