"""A shard of the sweep's second door: every sixth operator on lazy xla tensors, as recorded."""

from __future__ import annotations

import pytest

from tests.operators.cases import Case, cases, shard
from tests.operators.pool import Worker
from tests.operators.shard import assert_as_recorded

DOOR = "lazy"
SAMPLES = 2


@pytest.mark.parametrize("case", shard(cases(["float32"], ["forward"]), "4/6"), ids=str)
def test_comes_out_as_recorded(case: Case, worker: Worker) -> None:
    assert_as_recorded(case, worker, SAMPLES)
