"""The process behind the shards of the sweep that `make test` runs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.operators.pool import Worker
from tests.operators.shard import Shard


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """One for all doors, as its start takes as long as forty cases; its code is made quickly."""
    worker = Worker("", timeout=120, environment=os.environ)
    yield worker
    worker.stop()


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest, worker: Worker) -> Shard:
    """The module's CASES behind its DOOR, each on at most SAMPLES samples."""
    worker.door = request.module.DOOR
    return Shard(worker, request.module.CASES, request.module.SAMPLES)
