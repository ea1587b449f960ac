"""A program in several processes: who takes part, and that they launch the same collectives.

Each process launches its part of a program itself, and XLA's collectives connect the parts. Where
processes launch different programs XLA gives wrong numbers, and where one does not come the others
wait for ever. So a program that is new waits until all have come to it, and their collectives are
compared; of the others each only tells (see notice_board), which costs nothing per launch.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from xla_dynamo.backend import jax_adapter
from xla_dynamo.errors import NotAvailable, ReplicaError

from .messages import Messages
from .notice_board import NoticeBoard, Post
from .platforms import default_platform

_POLL = 0.01
_SLICE_MS = 1000


class Job:
    """This process's part in a job of several.

    client: the PJRT client whose programs reach the devices of all processes, from `connect` or
        `take` on.
    messages: those of this process to others, and from them.
    alike: whether the processes' programs have to be the same, not their collectives alone, as
        where they reach into each other's memory.

    Raises:
        ReplicaError: not all came to the coordination service.
    """

    client: Any

    def __init__(self, address: str, rank: int, count: int, patience: int) -> None:
        self.rank, self.count, self._patience = rank, count, patience
        self.alike = default_platform() != "cpu"
        self._order: list[int] = []  # the ids of all devices, where that of processes is not enough
        if not self.alike:
            set_patience(patience)
        try:
            self._service = jax_adapter.coordination_client(address, rank, patience)
        except Exception as error:
            raise ReplicaError(
                f"not all of {count} processes came to the coordination service at {address} "
                f"within {patience} s: {error}"
            ) from error
        self._host = "127.0.0.1" if address.startswith("127.") else address.rpartition(":")[0]
        self._meetings: dict[tuple[int, ...], int] = {}  # by who meets
        self._board = NoticeBoard(self._service, rank, count)
        self.messages = Messages(self._service, self._message)

    def connect(self, devices: int = 1) -> None:
        """Connect this process's devices with those of the others, who all do so now."""
        self.client = jax_adapter.processes_client(
            self._service, self.rank, self.count, devices, self._host
        )

    def take(self, client: Any) -> None:
        """Use a client that has found the others by itself, who all do so now."""
        self.client = client
        own = sorted(device.id for device in client.local_devices())
        self._order = [id for ids in self.exchange("devices of processes", own) for id in ids]

    def devices(self) -> tuple[Any, ...]:
        """Those of all processes, in the order of their ranks."""
        if self._order:
            by_id = {device.id: device for device in self.client.devices()}
            return tuple([by_id[id] for id in self._order])
        return tuple(sorted(self.client.devices(), key=lambda d: (d.process_index, d.id)))

    def announce(self, name: str, *, known: bool) -> None:
        """Tell of the next launch; wait for all, if the program is not `known` to this process.

        It is then to be compiled: by rank 0 first, if they share compiled programs, and when that
        is done each says so by `compiled`.

        name: equal in all processes whose programs have the same collectives.

        Raises:
            ReplicaError: another process launches another program, or does not come.
        """
        number = self._board.launches(name, known=known)
        if not known:
            self._wait(lambda posts: all(post.launches >= number for post in posts.values()))
            self._board.tell(compiling=True)

    def wait_for_first(self) -> None:
        """Wait until rank 0 has compiled what was announced."""
        if self.rank:
            number = self._board.own.launches
            self._board.tell(compiling=False)
            self._wait(lambda posts: posts[0].ready >= number)
            self._board.tell(compiling=True)

    def compiled(self) -> None:
        """Say that what was announced can be launched; wait until all can.

        A compile takes as long as it takes: XLA bounds the wait in a collective.
        """
        number = self._board.own.launches
        self._board.tell(compiling=False, ready=number)
        self._wait(lambda posts: all(post.ready >= number for post in posts.values()))

    def _wait(self, is_done: Callable[[dict[int, Post]], bool]) -> None:
        """Wait for what the others tell; while one compiles, it is given more time."""
        latest, deadline = 0.0, time.monotonic() + self._patience
        while True:
            posts = self._board.posts()
            difference = self._board.difference(posts)
            if difference:
                self.fail(difference)
            if len(posts) == self.count and is_done(posts):
                return
            verdict = self._board.known_verdict()
            if verdict:
                raise ReplicaError(verdict)
            told = max((post.time for post in posts.values() if post.compiling), default=0.0)
            if told > latest:
                latest, deadline = told, time.monotonic() + self._patience
            if time.monotonic() > deadline:
                self.fail(f"after {self._patience} s, {self._board.absent()}")
            time.sleep(_POLL)

    def exchange(self, tag: str, item: Any, among: Sequence[int] = ()) -> list[Any]:
        """The items (which are pickled) of all processes, or those `among`, which all come here.

        Raises:
            ReplicaError: not all came, or they came with other tags.
        """
        ranks = tuple(among) or tuple(range(self.count))
        number = self._meetings[ranks] = self._meetings.get(ranks, 0) + 1
        data = pickle.dumps((tag, item))
        self._service.key_value_set_bytes(_meeting(ranks, number, self.rank), data)
        items = []
        for rank in ranks:
            data = self._awaited(_meeting(ranks, number, rank), rank, tag)
            theirs, item = pickle.loads(data)
            if theirs != tag:
                self.fail(
                    f"rank {self.rank} is at the rendezvous {tag!r}, rank {rank} at {theirs!r}"
                )
            items.append(item)
        if number > 2:  # who has come to this one has read the one before the last
            self._service.key_value_delete(_meeting(ranks, number - 2, self.rank))
        return items

    def _awaited(self, key: str, rank: int, tag: str) -> bytes:
        """What process `rank` puts under a key for the rendezvous `tag`."""

        def wait() -> bytes | None:
            with contextlib.suppress(Exception):
                return self._service.blocking_key_value_get_bytes(key, _SLICE_MS)
            return None

        def why() -> str:
            return f"rank {rank} did not come to the rendezvous {tag!r}: {self._board.place(rank)}"

        return self._patiently(wait, why)

    def _message(self, poll: Callable[[], Any], why: Callable[[], str]) -> Any:
        """`_patiently`, for what another process, whichever it is, has to do."""
        return self._patiently(
            poll, lambda: f"after {self._patience} s {why()}; {self._board.places()}"
        )

    def _patiently(self, poll: Callable[[], Any], why: Callable[[], str]) -> Any:
        """What `poll` gives, as soon as that is not None.

        Raises:
            ReplicaError: a process found a cause of failure meanwhile, or the patience ends.
        """
        deadline = time.monotonic() + self._patience
        while (found := poll()) is None:
            verdict = self._board.known_verdict()
            if verdict:
                raise ReplicaError(verdict)
            if time.monotonic() > deadline:
                self.fail(why())
            time.sleep(_POLL)
        return found

    def fail(self, why: str) -> NoReturn:
        """Raise the first cause that any process found: what comes later follows from it."""
        raise ReplicaError(self._board.verdict(why))

    def explain(self, error: Exception) -> NoReturn:
        """Raise the reason why a collective of this process failed with `error`."""
        raise ReplicaError(self._board.verdict(self._board.cause() or str(error))) from error

    def tell(self, error: BaseException) -> None:
        """The user's program ends with `error` in this process."""
        if not isinstance(error, ReplicaError):
            self._board.verdict(f"rank {self.rank} raised {type(error).__name__}: {error}")

    def leave(self) -> None:
        """The orderly end of this process's part; the others are not disturbed."""
        self._board.close()
        with contextlib.suppress(Exception):
            self._service.shutdown()


def _meeting(ranks: tuple[int, ...], number: int, rank: int) -> str:
    return f"meeting/{'-'.join(map(str, ranks))}/{number}/{rank}"


def set_patience(seconds: int) -> None:
    """Bound the wait in XLA:CPU's own collectives; XLA reads its flags once, at its first use."""
    flag, flags = jax_adapter.COLLECTIVE_TIMEOUT_FLAG, os.environ.get("XLA_FLAGS", "")
    if flag and flag not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}={seconds}".strip()


_job: Job | None = None


def start(address: str, rank: int, count: int, patience: int) -> Job:
    """Make this process part of a job, before it uses a device; its client is to be connected."""
    global _job
    assert _job is None
    _job = Job(address, rank, count, patience)
    return _job


def current() -> Job | None:
    """The job that this process is part of."""
    return _job


def of_collectives() -> Job:
    """The job whose replicas a compiled graph of CPU tensors exchanges values with.

    Raises:
        NotAvailable: this process is part of none, or has several of its replicas.
    """
    if _job is None:
        raise NotAvailable(
            "this graph has collectives, and this process is no replica: start it by xmp.spawn or "
            "torchrun, and use a device of xla before the graph is compiled. Of replicas in "
            "threads, tensors have to be on the device (xm.xla_device())."
        )
    if len(_job.client.local_devices()) > 1:
        raise NotAvailable(
            "this graph has collectives of CPU tensors, and this process has several replicas: "
            "move the tensors to that of the thread (xm.xla_device())."
        )
    return _job
