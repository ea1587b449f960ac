"""The process behind the shards of the sweep that `make test` runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.operators.pool import Worker
from tests.operators.shard import Shard


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest) -> Iterator[Shard]:
    """The module's CASES behind its DOOR, each on at most SAMPLES samples."""
    module = request.module
    worker = Worker(module.DOOR, timeout=120)
    yield Shard(worker, module.CASES, module.SAMPLES)
    worker.stop()
