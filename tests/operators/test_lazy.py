"""A shard of the sweep's second door: every sixth operator on lazy xla tensors, as recorded."""

from __future__ import annotations

import pytest

from tests.operators.cases import Case, cases, shard
from tests.operators.shard import Shard

DOOR = "lazy"
SAMPLES = 2
CASES = shard(cases(["float32"], ["forward"]), "4/6")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_comes_out_as_recorded(case: Case, runner: Shard) -> None:
    runner.assert_as_recorded(case)
