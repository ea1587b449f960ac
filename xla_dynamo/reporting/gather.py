"""What a report keeps while the program runs: each program, its runs, memory. All of it is bounded.

It is told of programs (backend.observers) and of launches (backend.runtime.pjrt), each of which
costs some microseconds, most of them later: see `digest`.
"""

from __future__ import annotations

import linecache
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph

from xla_dynamo.backend import observers
from xla_dynamo.backend.metrics import CompileRecord
from xla_dynamo.bookkeeping import optional

from .model import Memory, Op
from .tally import RECENT, Thinned, Times

PROGRAMS = 2000  # of which details are kept
_OPS = 20_000  # of all programs together
_SPANS = 4000
_USES = 1000
_INTERVAL = 20_000_000  # ns between two looks at memory, at least
_SHARE = 200  # a look takes a 200th of the time at most
_PJRT = "xla_dynamo.backend.runtime.pjrt"


@dataclass(slots=True, eq=False)
class Watched:
    """A program, and its launches as seen by the thread that calls it."""

    owner: Gatherer
    number: int
    record: CompileRecord | None
    at: int | None = None
    code: str = ""
    ends_in_call: bool = False
    memory: Memory | None = None
    graph: tuple[Op, ...] = ()
    calls: Times = field(default_factory=Times)


class Gatherer:
    """An observer (backend.observers) that remembers."""

    def __init__(self) -> None:
        self.start = time.perf_counter_ns()
        self.programs: list[Watched] = []
        self.more = 0
        self.devices: dict[str, bool] = {}
        self.steps = 0
        self.step_times: deque[int] = deque(maxlen=RECENT)
        self.calls: Thinned[tuple[int, int, int]] = Thinned(_SPANS)
        self.ends: Thinned[tuple[int, int, int]] = Thinned(_SPANS)  # (start, end, `launched_as`)
        self.uses: Thinned[tuple[int, int, int, int]] = Thinned(_USES)
        self.names: dict[int, Watched] = {}  # by number of `launched_as`
        self.unnamed: dict[int, Times] = {}
        self._lock = threading.RLock()
        self._thread = threading.local()
        self._ops = 0
        self._new: deque[tuple[Watched, int, int]] = deque()  # emptied at each look
        self._next_look = 0
        self._own: set[Any] = set()  # this process's devices
        self._others = Watched(self, -1, None)
        self._listens = False
        if _PJRT in sys.modules:
            self.listen()

    def listen(self) -> None:
        """Have launches told, once pjrt (and with it jax) is imported."""
        if not self._listens:
            self._listens = True
            sys.modules[_PJRT].observe(self.launched)

    def end(self) -> None:
        """No more of them."""
        if self._listens:
            sys.modules[_PJRT].observe(None)

    def compiled(self, record: CompileRecord, executable: Any, graph: Graph | None) -> None:
        """See `observers.Observer`."""
        self.listen()
        watched = self._watch(executable)
        seconds = record.lowering_seconds + record.compile_seconds
        watched.at = time.perf_counter_ns() - int(seconds * 1e9)
        if graph is not None:
            from . import graphs

            self._keep(watched, graphs.ops_of(graph))

    def described(self, executable: Any, ops: Sequence[Op]) -> None:
        """See `observers.Observer`."""
        self._keep(executable.observed, ops)

    def _keep(self, watched: Watched, ops: Sequence[Op]) -> None:
        if watched is not self._others and self._ops < _OPS:
            watched.graph = tuple(ops)
            self._ops += len(ops)

    def _watch(self, executable: Any) -> Watched:
        """Begin to keep what is known of a program."""
        with self._lock:
            if len(self.programs) == PROGRAMS:
                self.more += 1
                executable.observed = self._others
                return self._others
            watched = Watched(self, len(self.programs), executable.record)
            self.programs.append(watched)
        executable.observed = watched
        self._describe(watched, executable)
        return watched

    @optional(None)
    def _describe(self, watched: Watched, executable: Any) -> None:
        pjrt = sys.modules[_PJRT]
        if watched.record is not None:
            file, _, line = watched.record.location.rpartition(":")
            watched.code = linecache.getline(file, int(line)).strip() if line.isdecimal() else ""
        is_program = isinstance(executable, pjrt.Executable)
        if not is_program:  # several programs with kernels of PyTorch's between
            executable = executable.part
        watched.ends_in_call = executable is None or pjrt.ends_in_call(executable)
        if executable is None:
            return
        self._own.update(pjrt.own_devices(executable))
        number = len(executable.devices)
        name = pjrt.describe(executable.device)
        self.devices[f"{name} x {number}" if number > 1 else name] = True
        if is_program:
            watched.memory = _memory(executable)

    def launched(self, executable: Any, start: int, end: int) -> None:
        """See `pjrt.observe`. This is on the path of each step: the rest is left to `digest`."""
        watched = executable.observed
        if watched is None or watched.owner is not self:
            watched = self._watch(executable)
        self._new.append((watched, start, end))
        if observers.sources and not watched.ends_in_call:
            self._latest().append(watched)
        if end > self._next_look:
            self.look()

    def _latest(self) -> deque[Watched]:
        """What this thread has launched since it said what that is."""
        try:
            return self._thread.latest
        except AttributeError:
            self._thread.latest = deque(maxlen=64)
            return self._thread.latest

    def digest(self) -> None:
        """Add up the launches of late."""
        with self._lock:
            for _ in range(len(self._new)):
                watched, start, end = self._new.popleft()
                watched.calls.add(end - start)
                self.calls.add((start, end, watched.number))

    def launched_as(self, program: int) -> None:
        """See `observers.Observer`."""
        latest = self._latest()
        if not latest:
            return
        # Beside the program itself: parts of it, and small ones that pad its arguments.
        largest = max(latest, key=lambda of: 0 if of.record is None else of.record.nodes)
        latest.clear()
        if self.names.get(program) is not largest and len(self.names) < 4 * PROGRAMS:
            if program in self.names:  # the number of an object that is gone
                self.unnamed.pop(program, None)
            self.names[program] = largest

    def ran(self, program: int, nanoseconds: int, end: int) -> None:
        """See `observers.Observer`."""
        with self._lock:
            times = self.unnamed.get(program)
            if times is None:
                if len(self.unnamed) >= 4 * PROGRAMS:
                    return
                times = self.unnamed[program] = Times()
            times.add(nanoseconds)
            self.ends.add((end - nanoseconds, end, program))

    def stepped(self) -> None:
        """See `observers.Observer`."""
        self.steps += 1
        self.step_times.append(time.perf_counter_ns())

    @optional(None)
    def look(self) -> None:
        """Note the memory in use now; the next look comes later the longer this one takes."""
        from xla_dynamo.backend.runtime import device_memory

        start = time.perf_counter_ns()
        self._next_look = start + _INTERVAL  # also if this fails
        self.digest()
        used = sum(device_memory.stats(device)["bytes_in_use"] for device in [*self._own])
        self.uses.add((start, self.steps, used, device_memory.of_process()))
        end = time.perf_counter_ns()
        self._next_look = end + max(_INTERVAL, (end - start) * _SHARE)


@optional(None)
def _memory(executable: Any) -> Memory | None:
    told = executable.memory()
    if told is None:
        return None
    return Memory(
        told.argument_size_in_bytes,
        told.output_size_in_bytes,
        told.temp_size_in_bytes,
        told.alias_size_in_bytes,
        told.generated_code_size_in_bytes,
    )
