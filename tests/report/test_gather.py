"""What is kept of a run is bounded, and adds up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from xla_dynamo.backend import observers
from xla_dynamo.backend.metrics import CompileRecord
from xla_dynamo.reporting import gather, snapshot
from xla_dynamo.reporting.gather import Gatherer
from xla_dynamo.reporting.tally import Thinned

pytestmark = pytest.mark.spine
RECORD = CompileRecord("0/0 forward", ("f32[2]",), 3, 0.25, 1.5, False, "first call", "a.py:4")


@pytest.fixture
def gatherer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gatherer]:
    made = Gatherer()
    monkeypatch.setattr(made, "look", made.digest)  # nobody counts memory here
    monkeypatch.setattr(made, "_describe", lambda watched, executable: None)
    monkeypatch.setattr(made, "_latest", lambda: latest)
    latest: list[Any] = []
    yield made
    made.end()


def executable(record: CompileRecord = RECORD) -> Any:
    return SimpleNamespace(observed=None, record=record, device=None)


def test_of_a_long_sequence_every_nth_is_kept() -> None:
    kept: Thinned[int] = Thinned(8)
    for number in range(1000):
        kept.add(number)
    assert kept.every == 128
    assert kept.items == list(range(0, 1000, 128))
    few: Thinned[int] = Thinned(8)
    for number in range(8):
        few.add(number)
    assert (few.every, few.items) == (1, list(range(8)))


def test_launches_add_up(gatherer: Gatherer) -> None:
    first, second = executable(), executable()
    for start in range(10):
        gatherer.launched(first, start, start + 5)
    gatherer.launched(second, 0, 7)
    run = snapshot.run_of(gatherer)
    assert [p.runs for p in run.programs] == [10, 1]
    assert run.programs[0].median_ms == pytest.approx(5e-6)
    assert run.programs[0].total_ms == pytest.approx(50e-6)
    assert run.programs[0].timed == "launch"
    assert (run.steps, run.step_is) == (11, "runs of 0/0 forward")


def test_launches_of_many_threads_add_up(gatherer: Gatherer) -> None:
    one = executable()
    gatherer.launched(one, 0, 1)

    def launch() -> None:
        for _ in range(1000):
            gatherer.launched(one, 0, time.perf_counter_ns())

    threads = [threading.Thread(target=launch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert snapshot.run_of(gatherer).programs[0].runs == 4001


def test_programs_without_end_are_counted(
    gatherer: Gatherer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "PROGRAMS", 3)
    for _ in range(5):
        gatherer.launched(executable(), 0, 1)
    run = snapshot.run_of(gatherer)
    assert (len(run.programs), run.more_programs) == (3, 2)
    assert "only the number is kept" in run.notes[-1]


def test_runs_of_a_device_are_those_of_what_the_thread_has_launched(
    gatherer: Gatherer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = observers.Source(lambda begin: None, list, dict)
    monkeypatch.setattr(observers, "sources", [source])
    in_call, padding, one = executable(), executable(replace(RECORD, nodes=1)), executable()
    gatherer.launched(in_call, 0, 1)
    in_call.observed.ends_in_call = True
    gatherer.launched(in_call, 1, 2)
    gatherer._latest().clear()
    for each in (in_call, padding, one):
        gatherer.launched(each, 100, 101)
    gatherer.launched_as(77)
    gatherer.ran(77, 2_000_000, gatherer.start + 3_000_000)
    gatherer.ran(78, 5, 5)  # of what was launched before the report
    run = snapshot.run_of(gatherer)
    assert [p.timed for p in run.programs] == ["completion", "launch", "completion"]
    assert run.programs[2].total_ms == 2.0
    assert run.programs[0].total_ms < 1
    assert [span.program for span in run.spans if span.end - span.start > 1e-4] == [2]


def test_another_report_begins_at_zero(gatherer: Gatherer) -> None:
    one = executable()
    gatherer.launched(one, 0, 1)
    other = Gatherer()
    gatherer.end()  # of all launches, in reality
    other._describe = lambda watched, executable: None  # type: ignore[method-assign]
    other._next_look = 2**63
    other.launched(one, 0, 1)
    assert one.observed.owner is other
    assert snapshot.run_of(other).programs[0].runs == 1
