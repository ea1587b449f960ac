"""Several cases in one graph: which of them are right for certain."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import xla_dynamo

from .alternatives import UNDEFINED
from .cases import Case, operators, samples
from .doors import Door
from .sweep import Run, announce, compare, expected
from .values import Arguments, Values


def right_together(cases: Sequence[Case], door: Door, limit: int) -> list[Case]:
    """Run the cases' samples (at most `limit` each) in one graph; the cases that are right.

    The cases have one direction. One that is left out may be right, too: it draws random numbers,
    or it shares the graph with a sample that raises or runs on the CPU.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = [Run(case, door, operators()[case.op].op) for case in cases]
        steady = [_steady(run, limit) for run in runs]
        planned = [(run, *pair) for run, pairs in zip(runs, steady, strict=True) for pair in pairs]
        if not planned:
            return []
        announce(*(sample for _, sample, _ in planned))
        xla_dynamo.reset_metrics()
        try:
            opened = door(_calls([run.op for run, _, _ in planned]))
            found = runs[0].run(opened, [sample for _, sample, _ in planned])
        except Exception:
            return []
        if any(name.startswith(("fallback", "bucket.")) for name in xla_dynamo.counters()):
            return []
        wrong = {
            run.case
            for (run, sample, want), got in zip(planned, found, strict=True)
            if not _is_right(run, sample, got, want)
        }
    return [
        run.case for run, pairs in zip(runs, steady, strict=True) if pairs and run.case not in wrong
    ]


def _steady(run: Run, limit: int) -> list[tuple[Any, Values]]:
    """The case's samples with eager's values; none if it is for `outcome_of` to judge."""
    if run.case.op in UNDEFINED:
        return []
    steady, random = expected(run, samples(run.case, limit))
    return [] if random else steady


def _calls(ops: Sequence[Any]) -> Any:
    """A function that runs each op on the arguments of its sample."""

    def call(packed: Sequence[Arguments]) -> list[Any]:
        return [
            op(first, *args, **kwargs)
            for op, (first, args, kwargs) in zip(ops, packed, strict=True)
        ]

    return call


def _is_right(run: Run, sample: Any, got: Values, want: Values) -> bool:
    try:
        compare(run, sample, got, want)
    except AssertionError:
        return False
    return True
