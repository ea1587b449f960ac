"""The programs that one graph becomes where PyTorch's kernels run between them.

Equal ones (blocks of a network that repeat) are compiled once, and all count as one compile. Where
XLA compiles one large program on several cores, it takes one for a small program: so several of
those are compiled at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch.fx import Graph

from xla_dynamo import interrupts
from xla_dynamo.backend import metrics, observers
from xla_dynamo.backend.graph.text import text_of
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.bookkeeping import optional

Part = TypeVar("Part")
Made = TypeVar("Made")
_MOST_THREADS = 8


@dataclass
class Parts:
    """What was compiled for one graph.

    lowering, from_disk: as in the record of a compile, of all together.
    seconds: what it took for all.
    """

    lowering: float = 0.0
    from_disk: bool = True
    seconds: float = 0.0
    _made: dict[str, Future[pjrt.Executable]] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def compiled(self, parts: Sequence[Part], compile: Callable[[Part], Made]) -> list[Made]:
        """What `compile` makes of each, in threads of which one at a time runs Python.

        Raises:
            What `compile` does, when the others are done.
        """

        def in_turn(part: Part) -> Made:
            with self._turn:
                return compile(part)

        start = time.perf_counter()
        workers = min(len(parts), len(os.sched_getaffinity(0)), _MOST_THREADS)
        with interrupts.deferred(once=True), ThreadPoolExecutor(max(workers, 1)) as pool:
            made = list(pool.map(in_turn, parts))
        self.seconds += time.perf_counter() - start
        return made

    @contextmanager
    def others_meanwhile(self) -> Iterator[None]:
        """Another part's turn, while XLA works for this one."""
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()

    def one_of_each(
        self, graph: Graph, compile: Callable[[Graph], pjrt.Executable]
    ) -> pjrt.Executable:
        """The executable of an equal graph that came before, or a new one."""
        text = text_of(graph)
        if text in self._made:
            with self.others_meanwhile():
                return self._made[text].result()
        future = self._made[text] = Future()
        try:
            future.set_result(compile(graph))
        except BaseException as error:
            future.set_exception(error)
            raise
        return future.result()

    def add(self, record: metrics.CompileRecord) -> None:
        self.lowering += record.lowering_seconds
        self.from_disk &= record.from_disk

    def some(self) -> pjrt.Executable | None:
        """One of the programs, if there is any."""
        return next((made.result() for made in self._made.values()), None)

    @optional(None)
    def record(
        self,
        name: str,
        shapes: tuple[str, ...],
        nodes: int,
        reason: str,
        location: str,
        some: pjrt.Executable | None,
        graph: Graph | None = None,
    ) -> Whole:
        """Record them as one compile, of so many nodes; some: one of the parts."""
        seconds = self.lowering, self.seconds - self.lowering
        details = nodes, *seconds, self.from_disk, reason, location
        record = metrics.CompileRecord(name, shapes, *details)
        metrics.record_compile(record)
        whole = Whole(record, some)
        observers.compiled(record, whole, graph)
        return whole


@dataclass
class Whole:
    """All parts of a graph, and the kernels between them, as what watches programs sees them.

    part: one of them.
    """

    record: metrics.CompileRecord
    part: pjrt.Executable | None
    observed: Any = None


def watched(run: Callable[[list[Any]], Made], whole: Whole | None) -> Callable[[list[Any]], Made]:
    """`run`, each call of which is told as a launch of the whole."""
    return run if whole is None else lambda arguments: told(run, arguments, whole)


def told(run: Callable[[list[Any]], Made], arguments: list[Any], whole: Whole | None) -> Made:
    """What `run` makes of its arguments, told as a launch of the whole."""
    if observers.current is None or whole is None:
        return run(arguments)
    start = time.perf_counter_ns()
    results = run(arguments)
    observers.launched(whole, start, time.perf_counter_ns())
    return results


@optional(None)
def tell(
    record: metrics.CompileRecord | None,
    parts: Parts | None,
    executable: pjrt.Executable,
    graph: Graph | None,
) -> None:
    """Record a compile of `graph`, which may be one of several parts."""
    if parts is not None:
        executable.is_part = True
    if record is None:
        return
    if parts is not None:
        executable.record = record
        parts.add(record)
        return
    metrics.record_compile(record)
    observers.compiled(record, executable, graph)
