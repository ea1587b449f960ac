"""Which replicas train together, and which of them a device is.

A replica is a device with its thread (data_parallel), or with its process (xla_multiprocessing).
What its ops record is compiled once for all replicas where it holds collectives, and launched
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from . import devices


class World(Protocol):
    """Replicas that train together."""

    size: int

    def launch(self, rank: int, trace: Any, live: Sequence[int], dead: Sequence[int]) -> None:
        """Launch the pending trace of replica `rank`, which has collectives; begin a new one.

        trace: a `trace.Trace`, a module that asks this one how many replicas there are.

        Raises:
            ReplicaError: not all replicas come, or they have not recorded the same program.
        """
        ...

    def exchange(self, rank: int, tag: str, item: Any, among: Sequence[int] = ()) -> list[Any]:
        """The items of all replicas, by rank; waits for all. Processes may do so `among` some.

        Raises:
            ReplicaError: not all replicas come, or they come with other tags.
        """
        ...

    def send(self, address: str, item: Any) -> None:
        """Send what can be pickled to the one who receives what is sent to `address`.

        Raises:
            ReplicaError: he does not receive.
        """
        ...

    def reserve(self, address: str) -> int:
        """The number of the caller's next message from an address, for `receive`."""
        ...

    def receive(self, address: str, number: int) -> Any:
        """A message.

        Raises:
            ReplicaError: it does not come.
        """
        ...

    def receive_any(self, addresses: Sequence[str]) -> tuple[int, Any]:
        """The next message from any of several addresses: from which, and the message.

        Raises:
            ReplicaError: none comes.
        """
        ...

    def graph(self, rank: int, lines: Sequence[str], text: str, compile: Any, aliases: int) -> Any:
        """What runs the compiled graph of replica `rank`: see `resident.Residency.of_replicas`.

        Raises:
            ReplicaError: as what it gives does, not all replicas come, or with other graphs.
        """
        ...

    def explain(self, error: Exception) -> NoReturn:
        """Raise why reading what a launch computes failed with `error`."""
        ...


@dataclass(frozen=True)
class Member:
    """A replica: number `rank` of its world, and number `local` of those on its host."""

    world: World
    rank: int
    local: int


_members: dict[int, Member] = {}
_of_process: Member | None = None


def of_device(index: int) -> Member | None:
    """The replica that runs on device `index` of this process."""
    return _members.get(index, _of_process)


@contextmanager
def joined(index: int, member: Member) -> Iterator[None]:
    """Within, `member` runs on device `index` of this process."""
    before = _members.get(index)
    _members[index] = member
    try:
        yield
    finally:
        if before is None:
            del _members[index]
        else:
            _members[index] = before


def join_process(member: Member) -> None:
    """`member` runs on each device of this process, to its end."""
    global _of_process
    _of_process = member


def leave_process() -> None:
    """This process runs no replica any more."""
    global _of_process
    _of_process = None


def current() -> Member | None:
    """The replica of the calling thread's default device."""
    devices.prepare()
    return of_device(devices.default().index) if _members else _of_process


def size_for(index: int) -> int:
    """How many replicas train together, of which device `index` of this process is one."""
    member = of_device(index)
    return 1 if member is None else member.world.size


def size() -> int:
    """How many replicas train together, the caller's included."""
    member = current()
    return 1 if member is None else member.world.size


def rank() -> int:
    """The number of the caller's replica."""
    member = current()
    return 0 if member is None else member.rank


def local_rank() -> int:
    """The number of the caller's replica among those of its host."""
    member = current()
    return 0 if member is None else member.local
