"""A shard of the sweep: every operator's float32 gradients must come out as the record says."""

from __future__ import annotations

import pytest

from tests.operators.cases import Case, cases
from tests.operators.pool import Worker
from tests.operators.shard import assert_as_recorded

DOOR = "compile"
SAMPLES = 1


@pytest.mark.parametrize("case", cases(["float32"], ["backward"]), ids=str)
def test_comes_out_as_recorded(case: Case, worker: Worker) -> None:
    assert_as_recorded(case, worker, SAMPLES)
