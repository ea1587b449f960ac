"""What the processes of a job tell each other of themselves, on JAX's coordination service.

A thread of each tells twice a second how many programs with collectives it has launched, which, and
where its main thread is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import threading
import time
from typing import Any

from xla_dynamo.errors import ReplicaError

PERIOD = 0.5  # seconds
_RECENT = 50
_END = "its end"
IN_PROGRAM = " in program "  # follows the collectives where all of the program has to be equal
_WHOLE = " On this hardware all of a program has to be the same: also which of its values are kept."
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))


@dataclasses.dataclass(frozen=True)
class Post:
    """What a process tells of itself.

    launches: how many programs with collectives it has begun to launch; ready: how many of these
        are compiled; compiling: whether it compiles the next.
    recent: (number, name) of the last.
    at: its main thread's line.
    time: when, on its host's clock.
    """

    launches: int = 0
    ready: int = 0
    compiling: bool = False
    recent: tuple[tuple[int, str], ...] = ()
    at: str = ""
    time: float = 0.0


class NoticeBoard:
    """This process's place on the board of a job of `count` processes."""

    def __init__(self, service: Any, rank: int, count: int) -> None:
        self.own = Post()
        self._heard = ""
        self._service, self._rank, self._count = service, rank, count
        self._main = threading.main_thread().ident or 0
        self._stop = threading.Event()
        self._posting = threading.Thread(target=self._post_always, daemon=True, name="xla job")
        self._posting.start()

    def tell(self, *, at_once: bool = True, **changes: Any) -> None:
        """Change what this process tells; the others read it at once, or a moment later."""
        self.own = dataclasses.replace(self.own, **changes)
        if at_once:
            self._post(self._place())

    def launches(self, name: str, *, known: bool) -> int:
        """Tell of the next launch; its number. A program that is not `known` is to be compiled."""
        number = self.own.launches + 1
        recent = (*self.own.recent[-_RECENT:], (number, name))
        ready = number if known else self.own.ready
        self.tell(at_once=not known, launches=number, ready=ready, recent=recent)
        return number

    def posts(self) -> dict[int, Post]:
        """What all that have come tell, by rank.

        Raises:
            ReplicaError: the service has gone.
        """
        try:
            found = self._service.key_value_dir_get("at/")
        except Exception as error:
            gone = f"the coordination service does not answer: {error}"
            raise ReplicaError(self._heard or gone) from error
        return {int(key.rsplit("/", 1)[1]): Post(**json.loads(text)) for key, text in found}

    def verdict(self, text: str) -> str:
        """The first cause that any process found, or this one: what comes later follows from it."""
        with contextlib.suppress(Exception):
            self._service.key_value_set("verdict", text)  # refused where there is one
        return self.known_verdict() or text

    def known_verdict(self) -> str:
        """The cause that a process found; empty if all is well."""
        with contextlib.suppress(Exception):  # there is none, or the service has gone
            self._heard = str(self._service.key_value_try_get("verdict"))
        return self._heard

    def difference(self, posts: dict[int, Post]) -> str:
        """How the programs that processes launch differ; empty if they do not."""
        mine = dict(self.own.recent)
        for rank, post in sorted(posts.items()):
            for number, name in post.recent:
                if mine.get(number, name) != name:
                    told = (
                        f"processes launch different programs: launch {number} with collectives "
                        f"has {mine[number]} on rank {self._rank} and {name} on rank {rank}, which "
                        f"is at {post.at}. All have to issue the same collectives, on tensors of "
                        "the same shapes, in the same order (drop_last=True for the loader)."
                    )
                    return told + (_WHOLE if IN_PROGRAM in name else "")
        return ""

    def place(self, rank: int) -> str:
        """Where a process is, as a clause."""
        post = self.posts().get(rank)
        return f"it is at {post.at}" if post else "it has not started"

    def places(self) -> str:
        """Where the other processes are."""
        others = (rank for rank in range(self._count) if rank != self._rank)
        return "; ".join(f"of rank {rank}: {self.place(rank)}" for rank in others)

    def absent(self, asked: float = 0.0) -> str:
        """Who is not where this process is; who has told nothing since `asked` is dead."""
        posts, told = self.posts(), []
        for rank in range(self._count):
            post = posts.get(rank)
            if post is None:
                told.append(f"rank {rank} has not started")
            elif post.at == _END:
                told.append(f"rank {rank} has ended after {post.launches} launches")
            elif post.time < asked and rank != self._rank:
                told.append(f"rank {rank} is dead: it was last at {post.at}")
            elif post.launches < self.own.launches:
                told.append(
                    f"rank {rank}, which has launched {post.launches} of {self.own.launches} "
                    f"programs with collectives, is at {post.at}"
                )
        return "; ".join(told)

    def cause(self) -> str:
        """Why a collective does not end: who is dead, behind or elsewhere; empty if unknown."""
        asked = time.time()
        time.sleep(3 * PERIOD)  # who lives has told again by then
        return self.difference(self.posts()) or self.absent(asked)

    def close(self) -> None:
        """Tell of this process's end, and nothing more."""
        self._stop.set()
        self._posting.join()
        with contextlib.suppress(Exception):
            self._post(_END)

    def _post(self, at: str) -> None:
        post = dataclasses.replace(self.own, at=at, time=time.time())
        text = json.dumps(dataclasses.asdict(post))
        self._service.key_value_set(f"at/{self._rank}", text, allow_overwrite=True)

    def _post_always(self) -> None:
        while not self._stop.wait(PERIOD):
            try:
                self._post(self._place())
                self.known_verdict()  # to be known when the service has gone with who hosts it
            except Exception:
                return  # the service has gone: who waits finds out by itself

    def _place(self) -> str:
        """The line of the user's program that the main thread is at."""
        frame = sys._current_frames().get(self._main)
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith(_PACKAGE) and "site-packages" not in file:
                return f"{file}:{frame.f_lineno}"
            frame = frame.f_back
        return "an unknown line"
