"""A shard of the sweep: every operator's float32 gradients must come out as the record says."""

from __future__ import annotations

import pytest

from tests.operators.cases import Case, cases
from tests.operators.shard import Shard

DOOR = "compile"
SAMPLES = 1
CASES = cases(["float32"], ["backward"])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_comes_out_as_recorded(case: Case, runner: Shard) -> None:
    runner.assert_as_recorded(case)
