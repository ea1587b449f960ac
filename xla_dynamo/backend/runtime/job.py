"""A program in several processes: what they tell each other beside their collectives.

Each process launches its part of a program itself, and XLA's collectives connect the parts. Where
processes launch different programs XLA gives wrong numbers, and where one does not come the others
wait for ever. So each tells the others, by JAX's coordination service, how many programs with
collectives it has launched, which, and where it is. That costs nothing per launch: a thread does it
twice a second, and only a program that is new waits until all have come to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from xla_dynamo.backend import jax_adapter
from xla_dynamo.errors import NotAvailable, ReplicaError

_PERIOD = 0.5
_RECENT = 50
_POLL = 0.01
_END = "its end"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


@dataclass(frozen=True)
class Post:
    """What a process tells of itself.

    launches: how many programs with collectives it has begun to launch; ready: how many of these
        are compiled; compiling: whether it compiles the next.
    recent: (number, name) of the last.
    at: its main thread's line.
    time: when, on its host's clock.
    """

    launches: int
    ready: int
    compiling: bool
    recent: list[tuple[int, str]]
    at: str
    time: float


class Job:
    """This process's part in a job of several.

    service: its connection to the coordination service.
    client: the PJRT client whose programs reach the devices of all processes, from `connect` on.
    """

    client: Any

    def __init__(self, address: str, rank: int, count: int, patience: int) -> None:
        self.rank, self.count, self._patience = rank, count, patience
        set_patience(patience)
        try:
            self.service = jax_adapter.coordination_client(address, rank, patience)
        except Exception as error:
            raise ReplicaError(
                f"not all of {count} processes came to the coordination service at {address} "
                f"within {patience} s: {error}"
            ) from error
        self._host = "127.0.0.1" if address.startswith("127.") else address.rpartition(":")[0]
        self._launches = self._ready = 0
        self._compiling = False
        self._recent: list[tuple[int, str]] = []
        self._meetings: dict[tuple[int, ...], int] = {}  # by who meets
        self._main = threading.main_thread().ident or 0
        self._stop = threading.Event()
        self._posting = threading.Thread(target=self._post_always, daemon=True, name="xla job")
        self._posting.start()

    def connect(self, devices: int = 1) -> None:
        """Connect this process's devices with those of the others, who all do so now."""
        self.client = jax_adapter.processes_client(
            self.service, self.rank, self.count, devices, self._host
        )

    def devices(self) -> tuple[Any, ...]:
        """Those of all processes, in the order of their ranks."""
        return tuple(sorted(self.client.devices(), key=lambda d: (d.process_index, d.id)))

    def announce(self, name: str, *, known: bool) -> None:
        """Tell of the next launch; wait for all, if the program is not `known` to this process.

        It is then to be compiled: by rank 0 first, if they share compiled programs, and when that
        is done each says so by `compiled`.

        name: equal in all processes whose programs have the same collectives.

        Raises:
            ReplicaError: another process launches another program, or does not come.
        """
        number = self._launches = self._launches + 1
        self._recent = [*self._recent[-_RECENT:], (number, name)]
        if known:
            self._ready = number
            return
        self._post(self._place())
        self._wait(lambda posts: all(post.launches >= number for post in posts.values()))
        self._compiling = True

    def wait_for_first(self) -> None:
        """Wait until rank 0 has compiled what was announced."""
        number = self._launches
        if self.rank:
            self._compiling = False
            self._wait(lambda posts: posts[0].ready >= number)
            self._compiling = True

    def compiled(self) -> None:
        """Say that what was announced can be launched; wait until all can.

        A compile takes as long as it takes: XLA bounds the wait in a collective.
        """
        self._compiling = False
        number = self._ready = self._launches
        self._post(self._place())
        self._wait(lambda posts: all(post.ready >= number for post in posts.values()))

    def _wait(self, is_done: Callable[[dict[int, Post]], bool]) -> None:
        """Wait for what the others tell; while one compiles, it is given more time."""
        latest, deadline = 0.0, time.monotonic() + self._patience
        while True:
            posts = self._posts()
            difference = self._difference(posts)
            if difference:
                self.fail(difference)
            if len(posts) == self.count and is_done(posts):
                return
            told = max((post.time for post in posts.values() if post.compiling), default=0.0)
            if told > latest:
                latest, deadline = told, time.monotonic() + self._patience
            if time.monotonic() > deadline:
                self.fail(f"after {self._patience} s, {self._absent()}")
            time.sleep(_POLL)

    def exchange(self, tag: str, item: Any, among: Sequence[int] = ()) -> list[Any]:
        """The items (which are pickled) of all processes, or those `among`, which all come here.

        Raises:
            ReplicaError: not all came, or they came with other tags.
        """
        ranks = tuple(among) or tuple(range(self.count))
        number = self._meetings[ranks] = self._meetings.get(ranks, 0) + 1
        data = pickle.dumps((tag, item))
        self.service.key_value_set_bytes(_meeting(ranks, number, self.rank), data)
        items = []
        for rank in ranks:
            try:
                milliseconds = self._patience * 1000
                data = self.service.blocking_key_value_get_bytes(
                    _meeting(ranks, number, rank), milliseconds
                )
            except Exception:
                post = self._posts().get(rank)
                place = f"is at {post.at}" if post else "has not started"
                self.fail(f"rank {rank} did not come to the rendezvous {tag!r}: it {place}")
            theirs, item = pickle.loads(data)
            if theirs != tag:
                self.fail(
                    f"rank {self.rank} is at the rendezvous {tag!r}, rank {rank} at {theirs!r}"
                )
            items.append(item)
        if number > 2:  # who has come to this one has read the one before the last
            self.service.key_value_delete(_meeting(ranks, number - 2, self.rank))
        return items

    def fail(self, why: str) -> NoReturn:
        """Raise the first cause that any process found: what comes later follows from it."""
        raise ReplicaError(self._verdict(why))

    def explain(self, error: Exception) -> NoReturn:
        """Raise the reason why a collective of this process failed with `error`."""
        raise ReplicaError(self._verdict(self._cause() or str(error))) from error

    def tell(self, error: BaseException) -> None:
        """The user's program ends with `error` in this process."""
        if not isinstance(error, ReplicaError):
            self._verdict(f"rank {self.rank} raised {type(error).__name__}: {error}")

    def leave(self) -> None:
        """The orderly end of this process's part; the others are not disturbed."""
        self._stop.set()
        self._posting.join()
        with contextlib.suppress(Exception):
            self._post(_END)
            self.service.shutdown()

    def _verdict(self, text: str) -> str:
        try:
            self.service.key_value_set("verdict", text)  # refused where there is one
            return text
        except Exception:
            pass
        try:
            return str(self.service.key_value_try_get("verdict"))
        except Exception:  # the service has gone with who hosts it
            return text

    def _post(self, at: str) -> None:
        counts = self._launches, self._ready, self._compiling
        post = Post(*counts, self._recent, at, time.time())
        text = json.dumps(post.__dict__)
        self.service.key_value_set(f"at/{self.rank}", text, allow_overwrite=True)

    def _post_always(self) -> None:
        while not self._stop.wait(_PERIOD):
            try:
                self._post(self._place())
            except Exception:
                return  # the service has gone: who waits finds out by itself

    def _posts(self) -> dict[int, Post]:
        try:
            found = self.service.key_value_dir_get("at/")
        except Exception as error:
            raise ReplicaError(f"the coordination service does not answer: {error}") from error
        return {int(key.rsplit("/", 1)[1]): Post(**json.loads(text)) for key, text in found}

    def _place(self) -> str:
        """The line of the user's program that the main thread is at."""
        frame = sys._current_frames().get(self._main)
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith(_PACKAGE) and "site-packages" not in file:
                return f"{file}:{frame.f_lineno}"
            frame = frame.f_back
        return "an unknown line"

    def _difference(self, posts: dict[int, Post]) -> str:
        mine = dict(self._recent)
        for rank, post in sorted(posts.items()):
            for number, name in post.recent:
                if mine.get(number, name) != name:
                    return (
                        "processes launch different programs: launch "
                        f"{number} with collectives has {mine[number]} on rank {self.rank} and "
                        f"{name} on rank {rank}, which is at {post.at}. All have to issue the same "
                        "collectives, on tensors of the same shapes, in the same order "
                        "(drop_last=True for the loader)."
                    )
        return ""

    def _cause(self) -> str:
        """Why a collective does not end: who is dead, behind or elsewhere."""
        asked = time.time()
        time.sleep(3 * _PERIOD)  # who lives has told again by then
        return self._difference(self._posts()) or self._absent(asked)

    def _absent(self, asked: float = 0.0) -> str:
        """Who is not where this process is; asked: who has told nothing since is dead."""
        posts, told = self._posts(), []
        for rank in range(self.count):
            post = posts.get(rank)
            if post is None:
                told.append(f"rank {rank} has not started")
            elif post.at == _END:
                told.append(f"rank {rank} has ended after {post.launches} launches")
            elif post.time < asked and rank != self.rank:
                told.append(f"rank {rank} is dead: it was last at {post.at}")
            elif post.launches < self._launches:
                told.append(
                    f"rank {rank}, which has launched {post.launches} of {self._launches} "
                    f"programs with collectives, is at {post.at}"
                )
        return "; ".join(told)


def _meeting(ranks: tuple[int, ...], number: int, rank: int) -> str:
    return f"meeting/{'-'.join(map(str, ranks))}/{number}/{rank}"


def set_patience(seconds: int) -> None:
    """Bound the wait in XLA:CPU's own collectives; XLA reads its flags once, at its first use."""
    flag, flags = jax_adapter.COLLECTIVE_TIMEOUT_FLAG, os.environ.get("XLA_FLAGS", "")
    if flag and flag not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}={seconds}".strip()


class Service:
    """The coordination service of a job, hosted by this process as long as this object lives.

    address: for the processes, "host:port".
    """

    def __init__(self, count: int, patience: int, host: str = "127.0.0.1", tries: int = 5) -> None:
        while True:
            with socket.socket() as probe:
                probe.bind((host, 0))
                self.address = f"{host}:{probe.getsockname()[1]}"
            try:
                self._service = jax_adapter.coordination_service(self.address, count, patience)
                return
            except Exception:  # another process took the port meanwhile
                tries -= 1
                if not tries:
                    raise


_job: Job | None = None


def start(address: str, rank: int, count: int, patience: int) -> Job:
    """Make this process part of a job, before it uses a device."""
    global _job
    assert _job is None
    _job = Job(address, rank, count, patience)
    _job.connect()
    return _job


def current() -> Job | None:
    """The job that this process is part of."""
    return _job


def of_collectives() -> Job:
    """The job whose replicas a compiled graph exchanges values with.

    Raises:
        NotAvailable: this process is part of none.
    """
    if _job is None:
        raise NotAvailable(
            "this graph has collectives, and this process is no replica: start it by xmp.spawn or "
            "torchrun, and use a device of xla before the graph is compiled."
        )
    return _job
