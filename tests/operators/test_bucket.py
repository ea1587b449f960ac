"""A shard of the sweep's third door: sizes of buckets, with nan behind every dimension."""

from __future__ import annotations

import pytest

from tests.operators.cases import Case, cases, shard
from tests.operators.shard import Shard

DOOR = "bucket"
SAMPLES = 2  # those of the record
CASES = shard(cases(["float32"], ["forward"]), "7/24")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_comes_out_as_recorded(case: Case, runner: Shard) -> None:
    runner.assert_as_recorded(case)
