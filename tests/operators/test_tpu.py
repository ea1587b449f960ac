"""A shard of the sweep's door for TPUs: each program is compiled by libtpu, and run on the CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.operators.cases import Case, cases, shard
from tests.operators.pool import Worker
from tests.operators.shard import Shard

DOOR = "tpu"
SAMPLES = 2  # those of the record
CASES = shard(cases(["float32"], ["forward"]), "5/48")


@pytest.fixture(scope="module")
def runner() -> Iterator[Shard]:
    worker = Worker(DOOR, timeout=120, environment=os.environ)
    yield Shard(worker, CASES, SAMPLES)
    worker.stop()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_comes_out_as_recorded(case: Case, runner: Shard) -> None:
    runner.assert_as_recorded(case)
