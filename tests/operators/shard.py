"""What `make test` asserts of a case: it comes out as the record says."""

from __future__ import annotations

import functools

from .cases import Case, recorded_samples
from .pool import Worker
from .publish import expected

_expected = functools.cache(expected)


def assert_as_recorded(case: Case, worker: Worker, limit: int) -> None:
    """Run a case on at most `limit` samples, and compare its outcome with the record.

    One that is not expected to be right may fail on its last sample only: it is run on as many
    samples as the record was made of.
    """
    recorded = _expected().get((f"{worker.door} {case.direction}", case.op, case.dtype))
    if recorded is None:
        outcome = worker.run(case, limit)
        assert outcome.outcome in ("right", "absent"), outcome.reason
        return
    outcome = worker.run(case, recorded_samples(case, worker.door))
    assert outcome.outcome == recorded, outcome.reason or "right: run the sweep, merge"
