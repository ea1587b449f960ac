"""A shard of the sweep: every operator in float32, forward, must come out as the record says.

The rest is run by `python -m tests.operators`: see CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.operators.cases import Case, cases
from tests.operators.pool import Worker
from tests.operators.publish import expected

# Samples of a case that is expected to be right. One that is not is run in full: it may fail on
# its last sample only.
SAMPLES = 4


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker("compile", timeout=120)
    yield worker
    worker.stop()


@pytest.mark.parametrize("case", cases(["float32"], ["forward"]), ids=str)
def test_comes_out_as_recorded(case: Case, worker: Worker) -> None:
    recorded = expected().get(("compile forward", case.op, case.dtype))
    outcome = worker.run(case, SAMPLES if recorded is None else None)
    if recorded is None:
        assert outcome.outcome in ("right", "absent"), outcome.reason
    else:
        assert outcome.outcome == recorded, outcome.reason or "right: run the sweep, merge"
