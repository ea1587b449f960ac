"""The world of replicas in several processes: each compiles and launches its part of a program.

A process has one replica (`Processes`), or one in a thread for each of its devices (`Gangs`).
On CPUs, programs of processes may differ outside of their collectives (rank 0 keeps its loss to
print it). On TPUs they have to be the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from xla_dynamo.bounded import Bounded
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values.trie import State, metas_in, refs_in
from xla_dynamo.compat.values.values import Meta
from xla_dynamo.lazily import lazily

from . import known_programs, program_cache, sync
from .gang import Gang
from .program import Program, Run

if TYPE_CHECKING:
    from xla_dynamo.backend.executable import joint
    from xla_dynamo.backend.runtime import job
else:
    joint = lazily("xla_dynamo.backend.executable.joint", globals())

aten = torch.ops.aten
# What replicas make of a sum first: an average of it, or a value of its own.
_CLONE, _PRODUCTS = aten.clone.default, (aten.mul.Tensor, aten.div.Tensor)


class Processes:
    """See `replicas.World`; its replicas are this process's part of a job and those of others."""

    def __init__(self, of: job.Job) -> None:
        self.size = of.count
        self._job = of
        messages = of.messages
        self.send, self.reserve = messages.send, messages.reserve
        self.receive, self.receive_any = messages.receive, messages.receive_any
        self._programs: Bounded[Hashable, tuple[Program, joint.JointProgram]] = Bounded(256)

    def launch(self, rank: int, trace: Trace, live: Sequence[int], dead: Sequence[int]) -> None:
        """See `replicas.World`."""
        start = time.perf_counter_ns()
        key = trace.state, tuple(live), tuple(dead)
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = compile_jointly(self._job, trace, live, dead)
        program, run = found
        sync.settle(trace, program, run(*sync.arguments(trace, program)), start)

    def exchange(self, rank: int, tag: str, item: Any, among: Sequence[int] = ()) -> list[Any]:
        """See `replicas.World`."""
        return self._job.exchange(tag, item, among)

    def graph(
        self, rank: int, lines: Sequence[str], text: str, compile: joint.Compile, aliases: int
    ) -> joint.Run:
        """See `replicas.World`."""
        return joint.JointProgram(self._job, lines, compile, text)

    def explain(self, error: Exception) -> NoReturn:
        """See `replicas.World`."""
        self._job.explain(error)


class Gangs(Gang):
    """Replicas in the threads of several processes, each of which has as many devices.

    local: the number of this process among those of its host.
    """

    def __init__(self, places: Sequence[torch.device], of: job.Job, local: int) -> None:
        each = len(places)
        super().__init__(places, each * of.count, each * of.rank, each * local)
        messages = of.messages
        self.send, self.reserve = messages.send, messages.reserve
        self.receive, self.receive_any = messages.receive, messages.receive_any
        self._job = of

    def exchange(self, rank: int, tag: str, item: Any, among: Sequence[int] = ()) -> list[Any]:
        """See `replicas.World`."""

        def act(items: list[Any]) -> list[Any]:
            every = [item for items in self._job.exchange(tag, items) for item in items]
            return [every] * len(items)

        return self.meet(rank, f"rendezvous {tag!r}", item, act)

    def explain(self, error: Exception) -> NoReturn:
        """See `replicas.World`."""
        self._job.explain(error)

    def devices(self) -> tuple[Any, ...]:
        """See `Gang`."""
        return self._job.devices()

    def compiler(
        self, lines: Sequence[str], text: str, compile: joint.Compile
    ) -> Callable[[], joint.Run]:
        """See `Gang`."""
        return lambda: joint.JointProgram(self._job, lines, compile, text).on_stacks

    def compile(
        self, trace: Trace, live: Sequence[int], dead: Sequence[int]
    ) -> tuple[Program, Run]:
        """See `Gang`."""
        program, run = compile_jointly(self._job, trace, live, dead)
        return program, lambda stacks: run.on_stacks(*stacks)


def compile_jointly(
    of: job.Job, trace: Trace, live: Sequence[int], dead: Sequence[int]
) -> tuple[Program, joint.JointProgram]:
    """The program for the values `live`, and for the collectives.

    A collective runs on all ranks or on none, so each runs, needed or not.
    """
    path = trace.state.path()
    every = _with_collectives(path, live)
    made: list[Program] = []

    def compile(on: tuple[Any, ...]) -> Callable[..., Sequence[Any]]:
        program, run = program_cache.compile_trace(trace, every, dead, on)
        made.append(program)
        return lambda *stacks: run(list(stacks))

    lines = [
        joint.line_of(state.op.func, state.args, metas_in(state.outputs))
        for state in path
        if state.op.collective
    ]
    whole = known_programs.text_of(trace, every, dead) if of.alike else ""
    run = joint.JointProgram(of, lines, compile, whole)
    return made[0], run


def _with_collectives(path: Sequence[State], live: Sequence[int]) -> tuple[int, ...]:
    """The values `live`, and those of collectives that might not be computed for them."""
    computed, kept = set(live), set(live)
    begin = sum(len(metas_in(state.outputs)) for state in path)
    for state in reversed(path):
        metas = metas_in(state.outputs)
        begin -= len(metas)
        own = range(begin, begin + len(metas))
        if state.op.collective:
            kept.update(set(own) - computed)
        elif _takes_all(state, metas) and not computed.isdisjoint(own):
            computed.update(ref.index for ref in refs_in(state.key) if ref.meta is None)
    return tuple(sorted(kept))


def _takes_all(state: State, metas: Sequence[Meta]) -> bool:
    """Whether an op surely needs the values that it takes: no zero makes nothing of a float."""
    func = state.op.func
    return func is _CLONE or (func in _PRODUCTS and metas[0].dtype.is_floating_point)
