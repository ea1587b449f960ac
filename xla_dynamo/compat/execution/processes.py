"""The world of a replica in a process of its own: each compiles and launches its part of a program.

Programs of processes may differ outside of their collectives (rank 0 keeps its loss to print it).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from xla_dynamo.bounded import Bounded
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values.trie import State, metas_in
from xla_dynamo.lazily import lazily

from . import program_cache, sync
from .program_cache import Program

if TYPE_CHECKING:
    from xla_dynamo.backend.executable import joint
    from xla_dynamo.backend.runtime import job
else:
    joint = lazily("xla_dynamo.backend.executable.joint", globals())


class Processes:
    """See `replicas.World`; its replicas are this process's part of a job and those of others."""

    def __init__(self, of: job.Job) -> None:
        self.size = of.count
        self._job = of
        self._programs: Bounded[Hashable, tuple[Program, joint.JointProgram]] = Bounded(256)

    def launch(self, rank: int, trace: Trace, live: Sequence[int], dead: Sequence[int]) -> None:
        """See `replicas.World`."""
        start = time.perf_counter_ns()
        key = trace.state, tuple(live), tuple(dead)
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = self._compile(trace, live, dead)
        program, run = found
        sync.settle(trace, program, run(*sync.arguments(trace, program)), start)

    def exchange(self, rank: int, tag: str, item: Any, among: Sequence[int] = ()) -> list[Any]:
        """See `replicas.World`."""
        return self._job.exchange(tag, item, among)

    def explain(self, error: Exception) -> NoReturn:
        """See `replicas.World`."""
        self._job.explain(error)

    def _compile(
        self, trace: Trace, live: Sequence[int], dead: Sequence[int]
    ) -> tuple[Program, joint.JointProgram]:
        """The program for the values `live` and the results of collectives.

        A collective runs on all ranks or on none, so each runs, needed or not.
        """
        path = trace.state.path()
        every = tuple(sorted({*live, *_results_of_collectives(path)}))
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
        run = joint.JointProgram(self._job, lines, compile)
        return made[0], run


def _results_of_collectives(path: Sequence[State]) -> list[int]:
    """The values of a trace that a collective computes, by index."""
    found, index = [], 0
    for state in path:
        count = len(metas_in(state.outputs))
        if state.op.collective:
            found.extend(range(index, index + count))
        index += count
    return found
