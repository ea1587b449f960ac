"""The names of torch_xla, and a fresh device for each test of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import xla_dynamo.compat  # noqa: F401
from xla_dynamo.compat import device, metrics


@pytest.fixture(autouse=True)
def fresh_devices() -> Iterator[None]:
    """Nothing pending, nothing compiled, nothing counted."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    device._windows.clear()
    metrics.settle()
    with metrics.lock:
        metrics.counters.clear()
        metrics.metrics.clear()
        metrics.launches.clear()
