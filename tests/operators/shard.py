"""What `make test` asserts of a case: it comes out as the record says."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from .cases import Case, recorded_samples
from .pool import Worker
from .publish import expected

_expected = functools.cache(expected)
_IN_A_GRAPH = 8  # with 16 it takes as long


class Shard:
    """Cases for one worker. Those that are recorded as right run several in a graph.

    Compiling takes most of a case's time, and half as long so. A case that is not right in its
    graph, for whatever reason, runs again alone.
    """

    def __init__(self, worker: Worker, cases: Sequence[Case], limit: int) -> None:
        self._worker = worker
        self._limit = limit
        right = [case for case in cases if self._recorded(case) is None]
        self._graphs = {
            case: right[first : first + _IN_A_GRAPH]
            for first in range(0, len(right), _IN_A_GRAPH)
            for case in right[first : first + _IN_A_GRAPH]
        }
        self._seen_right: set[Case] = set()

    def assert_as_recorded(self, case: Case) -> None:
        """Run a case, and compare its outcome with the record.

        One that is not expected to be right may fail on its last sample only: it is run on as many
        samples as the record was made of.
        """
        recorded = self._recorded(case)
        if recorded is None:
            self._assert_right(case)
            return
        outcome = self._worker.run(case, recorded_samples(case, self._worker.door))
        assert outcome.outcome == recorded, outcome.reason or "right: run the sweep, merge"

    def _assert_right(self, case: Case) -> None:
        graph = self._graphs.pop(case, None)
        if graph is not None:
            self._seen_right.update(self._worker.right_together(graph, self._limit))
            for other in graph:
                self._graphs.pop(other, None)
        if case not in self._seen_right:
            outcome = self._worker.run(case, self._limit)
            assert outcome.outcome in ("right", "absent"), outcome.reason

    def _recorded(self, case: Case) -> str | None:
        key = (f"{self._worker.door} {case.direction}", case.op, case.dtype)
        return _expected().get(key)
