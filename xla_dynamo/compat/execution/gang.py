"""The meeting point of replicas in threads: their traces become one launch over all devices.

Whoever comes last launches for all; where several processes have such threads, for those of his,
after the processes have agreed. Nobody waits for longer than the patience of the settings: what
ends the wait is an error that names the replica that did not come, and where it is.
"""

from __future__ import annotations

import collections
import functools
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from xla_dynamo import interrupts
from xla_dynamo.bounded import Bounded
from xla_dynamo.compat.recording import devices
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values.describe import op_at, show
from xla_dynamo.compat.values.trie import State
from xla_dynamo.compat.values.values import Array
from xla_dynamo.config import config
from xla_dynamo.errors import ReplicaError
from xla_dynamo.lazily import lazily

from . import gang_graph, program_cache, sync
from .gang_graph import GangGraph
from .program import Program, Run

if TYPE_CHECKING:
    import torch

    from xla_dynamo.backend.executable import joint
    from xla_dynamo.backend.runtime import replica_arrays
else:
    joint = lazily("xla_dynamo.backend.executable.joint", globals())
    replica_arrays = lazily("xla_dynamo.backend.runtime.replica_arrays", globals())

Act = Callable[[list[Any]], list[Any]]  # a result for each


class Gang:
    """Replicas in threads, each with a device of its own: all of them, or those of this process.

    places: the device of each replica, by rank.
    size: how many replicas there are.
    first: the rank of this process's first; first_here: its number among those of its host.
    """

    def __init__(
        self, places: Sequence[torch.device], size: int = 0, first: int = 0, first_here: int = 0
    ) -> None:
        self.size, self.first, self.first_here = size or len(places), first, first_here
        self._places = places
        self._ranks = range(first, first + len(places))
        self._programs: Bounded[Hashable, tuple[Program, Run]] = Bounded(256)
        self.open()

    def open(self) -> None:
        """Begin a run: every replica is expected, whatever became of the run before."""
        self._changed = threading.Condition()
        self._threads: dict[int, int] = {}
        self._came: set[int] = set()  # who has met the others, or ended
        self._ended: list[int] = []
        self._given: dict[int, tuple[str, Any]] = {}
        self._results: list[Any] = []
        self._meetings = 0
        self._broken: ReplicaError | None = None
        self._messages: dict[tuple[str, int], Any] = {}
        self._sent: collections.Counter[str] = collections.Counter()
        self._reserved: collections.Counter[str] = collections.Counter()
        self._listening: dict[int, str] = {}  # threads that wait for messages

    def join(self, rank: int, *, in_turn: bool = False) -> None:
        """The calling thread runs replica `rank`.

        in_turn: wait until those before it have come to their first meeting. What they do until
            then, such as making a model of seeded random numbers, they do alone: threads share
            PyTorch's generator.
        """
        with self._changed:
            self._threads[rank] = threading.get_ident()
            if in_turn:
                before = set(self._ranks[: rank - self.first])
                self._changed.wait_for(lambda: before <= self._came, config().patience)

    def leave(self, rank: int) -> None:
        """The replica's loop is over. With others waiting for it, that is an error of theirs."""
        with self._changed:
            self._threads.pop(rank, None)
            self._ended.append(rank)
            self._comes(rank)
            if self._given:
                self._break(f"replica {rank} has ended while {self._waiting()}")

    def fail(self, rank: int, error: BaseException) -> None:
        """The replica raised: nobody waits for it any more."""
        with self._changed:
            self._threads.pop(rank, None)
            self._comes(rank)
            self._break(f"replica {rank} ended with {type(error).__name__}: {error}", error)

    def exchange(self, rank: int, tag: str, item: Any, among: Sequence[int] = ()) -> list[Any]:
        """See `replicas.World`."""
        return self.meet(rank, f"rendezvous {tag!r}", item, lambda items: [items] * len(items))

    def launch(self, rank: int, trace: Trace, live: Sequence[int], dead: Sequence[int]) -> None:
        """See `replicas.World`."""
        start = time.perf_counter_ns()
        program, results = self.meet(rank, "a launch", (trace, live, dead), self._launch)
        sync.settle(trace, program, results, start)

    def graph(
        self, rank: int, lines: Sequence[str], text: str, compile: joint.Compile, aliases: int
    ) -> joint.Run:
        """See `replicas.World`."""
        compiler = self.compiler(lines, text, compile)
        meet, name = functools.partial(self.meet, rank), joint.name_of(lines, text)
        return GangGraph(meet, self.devices(), name, aliases, compiler)

    def compiler(
        self, lines: Sequence[str], text: str, compile: joint.Compile
    ) -> Callable[[], joint.Run]:
        """What compiles a graph for all devices, and gives what runs it on stacks."""
        return lambda: compile(self.devices())

    def explain(self, error: Exception) -> NoReturn:
        """See `replicas.World`."""
        raise error

    def send(self, address: str, item: Any) -> None:
        """See `replicas.World`."""
        with self._changed:
            self._sent[address] += 1
            self._messages[address, self._sent[address]] = item
            self._changed.notify_all()

    def reserve(self, address: str) -> int:
        """See `replicas.World`."""
        with self._changed:
            self._reserved[address] += 1
            return self._reserved[address]

    def receive(self, address: str, number: int) -> Any:
        """See `replicas.World`."""
        return self._receive(lambda: [(address, number)])[1]

    def receive_any(self, addresses: Sequence[str]) -> tuple[int, Any]:
        """See `replicas.World`."""
        address, item = self._receive(lambda: [(a, self._reserved[a] + 1) for a in addresses])
        self.reserve(address)
        return addresses.index(address), item

    def _receive(self, keys: Callable[[], list[tuple[str, int]]]) -> tuple[str, Any]:
        """The first message that there is under a key, and its address."""

        def came() -> list[tuple[str, int]]:
            return [key for key in keys() if key in self._messages]

        with self._changed:
            addresses, thread = ", ".join(address for address, _ in keys()), threading.get_ident()
            self._listening[thread] = addresses
            self._changed.wait_for(lambda: self._broken or came(), config().patience)
            del self._listening[thread]
            if not came():
                if self._broken is None:
                    self._break(f"after {config().patience} s, no message came for {addresses}")
                assert self._broken is not None
                raise self._broken
            key = came()[0]
            return key[0], self._messages.pop(key)

    def meet(self, rank: int, what: str, item: Any, act: Act) -> Any:
        """This replica's part of what `act` makes of the items of all, by rank."""
        with self._changed:
            if self._broken is not None:
                raise self._broken
            meeting = self._meetings
            self._given[rank] = what, item
            self._comes(rank)
            if self._ended:
                self._break(f"replica {self._ended[0]} has ended while {self._waiting()}")
            if len(self._given) == len(self._ranks):
                self._hold(act)
            patience = config().patience
            if not self._changed.wait_for(
                lambda: self._meetings != meeting or self._broken, patience
            ):
                self._break(f"after {patience} s {self._waiting()}, and {self._absent()}")
            if self._meetings == meeting:
                assert self._broken is not None
                raise self._broken
            mine = self._results[rank - self.first]
            self._results[rank - self.first] = None  # what it is freed by is up to the replica
            return mine

    def _comes(self, rank: int) -> None:
        if rank not in self._came:
            self._came.add(rank)
            self._changed.notify_all()

    def _hold(self, act: Act) -> None:
        """All have come. Keeps the results until the next meeting, as nobody is late for them."""
        kinds = {rank: self._given[rank][0] for rank in self._ranks}
        if len(set(kinds.values())) > 1:
            told = ", ".join(f"replica {rank} in {kind}" for rank, kind in kinds.items())
            advice = gang_graph.advice(kinds.values())
            self._break(f"replicas are at different places: {told}{advice}")
            return
        try:
            with interrupts.deferred():
                self._results = act([self._given[rank][1] for rank in self._ranks])
        except BaseException as error:
            if isinstance(error, ReplicaError):
                self._break(str(error))
            else:
                self._break(f"the program failed for all replicas: {error}", error)
            return
        self._meetings += 1
        self._given = {}
        self._changed.notify_all()

    def _launch(self, given: list[Any]) -> list[tuple[Program, list[Array]]]:
        """One launch for the traces of all replicas; each gets its own results."""
        traces: list[Trace] = [trace for trace, _, _ in given]
        live = tuple(sorted(set().union(*[live for _, live, _ in given])))  # somebody needs it
        dead = tuple(sorted(set(given[0][2]).intersection(*[dead for _, _, dead in given])))
        key = tuple([trace.state for trace in traces]), live, dead
        found = self._programs.get(key)
        if found is None:
            _compare(traces)
            found = self._programs[key] = self.compile(traces[0], live, dead)
        program, run = found
        arguments = [sync.arguments(trace, program) for trace in traces]
        results = replica_arrays.run_together(
            lambda *stacks: run([*stacks]), arguments, self.devices()
        )
        return [(program, each) for each in results]

    def devices(self) -> tuple[Any, ...]:
        """The PJRT devices of all replicas, by rank."""
        return tuple(devices.client_device(place) for place in self._places)

    def compile(
        self, trace: Trace, live: Sequence[int], dead: Sequence[int]
    ) -> tuple[Program, Run]:
        """The program that is launched for all, and what runs it on stacks."""
        return program_cache.compile_trace(trace, live, dead, self.devices())

    def _break(self, why: str, cause: BaseException | None = None) -> None:
        if self._broken is None:
            self._broken = ReplicaError(why)
            self._broken.__cause__ = cause
        self._given = {}
        self._changed.notify_all()

    def _waiting(self) -> str:
        ranks = sorted(self._given)
        who = f"replica {ranks[0]} waits" if len(ranks) == 1 else f"replicas {ranks} wait"
        return f"{who} in {self._given[ranks[0]][0]}"

    def _absent(self) -> str:
        frames = sys._current_frames()
        parts = []
        for rank in sorted(set(self._ranks) - set(self._given)):
            thread = self._threads.get(rank, -1)
            if thread in self._listening:
                parts.append(f"replica {rank} waits for a message for {self._listening[thread]}")
                continue
            frame = frames.get(thread)
            last = traceback.extract_stack(frame)[-1] if frame is not None else None
            where = f"at {last.filename}:{last.lineno} ({last.line})" if last else "gone"
            parts.append(f"replica {rank} is {where}")
        return ", ".join(parts)


def _told(state: State) -> str:
    return f"{op_at(state)} on {', '.join(map(show, state.args))}"


def _compare(traces: Sequence[Trace]) -> None:
    """Raise where replicas recorded different programs."""
    first = traces[0].state.path()
    for rank, trace in enumerate(traces[1:], 1):
        other = trace.state.path()
        for mine, theirs in zip(first, other, strict=False):
            if mine.key != theirs.key:
                raise ReplicaError(
                    f"replicas recorded different programs: where replica 0 calls {_told(mine)}, "
                    f"replica {rank} calls {_told(theirs)}. All "
                    "replicas have to issue the same ops on tensors of the same shapes in a step "
                    "(drop_last=True for the loader), and to read values (.item(), print) at the "
                    "same places."
                )
        if len(first) != len(other):
            longer, by = (first, 0) if len(first) > len(other) else (other, rank)
            more = longer[min(len(first), len(other))]
            raise ReplicaError(
                f"replicas recorded different programs: only replica {by} calls {op_at(more)}. All "
                "replicas have to issue the same ops in a step, and to end it at the same place."
            )
