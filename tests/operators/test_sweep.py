"""A shard of the sweep: every operator in float32, forward, must come out as the record says.

Gradients are in test_gradients.py, so that two processes can share the work. The rest is run by
`python -m tests.operators`: see CONTRIBUTING.md.
"""

from __future__ import annotations

import pytest

from tests.operators.cases import Case, cases
from tests.operators.shard import Shard

DOOR = "compile"
SAMPLES = 2
CASES = cases(["float32"], ["forward"])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_comes_out_as_recorded(case: Case, runner: Shard) -> None:
    runner.assert_as_recorded(case)
