"""The process behind the shards of the sweep that `make test` runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.operators.pool import Worker


@pytest.fixture(scope="module")
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    """A worker for the door that the test's module names in DOOR."""
    worker = Worker(request.module.DOOR, timeout=120)
    yield worker
    worker.stop()
