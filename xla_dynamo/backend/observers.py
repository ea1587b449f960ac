"""Who is told of programs that are compiled and run: the report of a run, where one is asked for.

Without one nothing is told, and nothing is spent. A way in that has a device of its own (compat's)
adds a `Source`, which says what only it knows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch.fx import Graph

from xla_dynamo.bookkeeping import optional

from .metrics import CompileRecord


class Observer(Protocol):
    """Hears of every program. Launches it times itself: see `runtime.pjrt.observe`."""

    def compiled(self, record: CompileRecord, executable: Any, graph: Graph | None) -> None:
        """A program was made; there is no graph where it comes from the disk by a shorter way."""

    def described(self, executable: Any, ops: Sequence[Any]) -> None:
        """The ops (reporting.model.Op) of a program that was told of without a graph."""

    def launched(self, executable: Any, start: int, end: int) -> None:
        """A program was called, from `start` to `end` (perf_counter_ns)."""

    def launched_as(self, program: int) -> None:
        """What this thread has launched since the last call counts as a run of `program`."""

    def ran(self, program: int, nanoseconds: int, end: int) -> None:
        """A run of `program` took so long, and was done at `end` (perf_counter_ns)."""

    def stepped(self) -> None:
        """A training step has ended."""


@dataclass(frozen=True)
class Traffic:
    """Copies between the host and devices; None: it is not known how large, or how long."""

    what: str
    count: int
    bytes: int | None
    seconds: float | None = None


@dataclass(frozen=True)
class Source:
    """What a way in with a device of its own tells.

    listen: begin (True) or end to tell the observer of launches and steps.
    traffic: what was copied since the process began; runs that have ended are told of before.
    fallbacks: how often each op ran on the CPU: {"aten::nonzero": 3}.
    """

    listen: Callable[[bool], None]
    traffic: Callable[[], list[Traffic]]
    fallbacks: Callable[[], dict[str, int]]


current: Observer | None = None
sources: list[Source] = []
rank: int | None = None  # this process's, where it is a replica that xmp.spawn has started
# Begin the report that this process was asked for, and end it: once reporting.session is loaded.
begin_report: Callable[[], None] | None = None
end_report: Callable[[], None] | None = None


def asked() -> str | None:
    """The file of the report that the environment asks for.

    Read here: who sets other variables may do so after the import, where this is asked first.
    """
    return os.environ.get("XLA_DYNAMO_REPORT") or None


def add(source: Source) -> None:
    """A way in was loaded."""
    sources.append(source)
    if current is not None:
        source.listen(True)


def observe(observer: Observer | None) -> None:
    """Tell this one from now on, or none."""
    global current
    before, current = current, observer
    if (before is None) != (observer is None):
        for source in sources:
            source.listen(observer is not None)


@contextlib.contextmanager
def replica(number: int) -> Iterator[None]:
    """The block is the life of a replica in a process of its own, which may be a fork."""
    global rank
    rank = number
    if begin_report is not None:
        begin_report()
    try:
        yield
    finally:
        if end_report is not None:
            end_report()


@optional(None)
def compiled(record: CompileRecord, executable: Any, graph: Graph | None) -> None:
    """Tell of a program that was made."""
    executable.record = record
    if current is not None:
        current.compiled(record, executable, graph)


@optional(None)
def described(executable: Any, ops: Callable[[], Sequence[Any]]) -> None:
    """Tell of the ops of a program, which `ops` gives, where that is not known."""
    watched = getattr(executable, "observed", None)
    if current is not None and watched is not None and not watched.graph:
        current.described(executable, ops())


@optional(None)
def launched(what: Any, start: int, end: int) -> None:
    """Tell of a run of what is no program of PJRT's: `what` has `record` and `observed` as they."""
    if current is not None:
        current.launched(what, start, end)


@optional(None)
def launched_as(program: int) -> None:
    """Tell what this thread has launched."""
    if current is not None:
        current.launched_as(program)


@optional(None)
def ran(program: int, nanoseconds: int, end: int) -> None:
    """Tell how long a run took."""
    if current is not None:
        current.ran(program, nanoseconds, end)


@optional(None)
def stepped() -> None:
    """Tell that a step has ended."""
    if current is not None:
        current.stepped()
