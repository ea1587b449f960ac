from __future__ import annotations

import pytest

from xla_dynamo.reporting import units

pytestmark = pytest.mark.spine


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0, "0 s"), (2.5e-6, "2.5 µs"), (0.0021, "2.1 ms"), (1.25, "1.25 s"), (99.4, "99.4 s")],
        *[(200.0, "3 min 20 s"), (3700.0, "1 h 1 min")],
    ],
)
def test_times(value: float, text: str) -> None:
    assert units.seconds(value) == text
    assert units.milliseconds(value * 1e3) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (1000, "1000 B"), (1536, "1.5 KiB"), (2**40 * 3, "3 TiB")]
)
def test_sizes(value: int, text: str) -> None:
    assert units.size(value) == text


def test_counts() -> None:
    assert [units.count(n, "run") for n in (0, 1, 2000)] == ["0 runs", "1 run", "2,000 runs"]
