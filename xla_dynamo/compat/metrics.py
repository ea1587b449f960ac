"""Counters and timings of the lazy device, by torch_xla's names."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from xla_dynamo.backend import metrics as backend_metrics

_lock = threading.Lock()
_counters: collections.Counter[str] = collections.Counter()


def count(name: str, by: int = 1) -> None:
    """Add to a counter."""
    _counters[name] += by


def sample(name: str, value: float) -> None:
    """Add a sample (nanoseconds, or bytes) to a metric."""


@contextlib.contextmanager
def timed(name: str) -> Iterator[None]:
    """Sample the time that the block takes."""
    start = time.perf_counter_ns()
    try:
        yield
    finally:
        sample(name, time.perf_counter_ns() - start)


def count_fallback(func: Any) -> None:
    """Count an op that ran on the CPU."""
    count(func._schema.name)


def fallback(func: Any, place: Any) -> None:
    """Count an op that ran on the CPU, and say so once for each line."""
    count_fallback(func)
    where = f"{place[0].co_filename}:{place[1]}" if place else "(no source line)"
    backend_metrics.warn_once(
        (func, where),
        f"{func} at {where} runs on the CPU: its result depends on values or it has no lowering.",
        backend_metrics.FallbackWarning,
    )
