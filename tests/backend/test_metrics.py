"""Counters, records of compiles and passes, warnings that come once, and the stages' text."""

from __future__ import annotations

import logging
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.backend.graphs import traced
from xla_dynamo.backend import metrics
from xla_dynamo.backend.metrics import CompileRecord, PassRecord, Stages

pytestmark = pytest.mark.spine
RECORD = CompileRecord("0/0 forward", ("f32[2]",), 3, 0.25, 1.5, False, "first call", "a.py:4")
STAGES = Stages("0/0 forward", "an fx graph", "a torch module", "a stablehlo module", "hlo")


def test_counters_of_many_threads() -> None:
    def count() -> None:
        for _ in range(500):
            metrics.count("calls")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    metrics.count("bytes", 7)
    assert metrics.counters() == {"calls": 2000, "bytes": 7}


def test_a_record_reads_as_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "xla_dynamo.compiles"):
        metrics.record_compile(RECORD)
    assert caplog.messages == [
        "0/0 forward: 3 ops lowered in 0.25 s, compiled in 1.50 s for (f32[2]): first call; "
        "first op at a.py:4"
    ]
    assert metrics.compiles() == [RECORD]


def test_passes_are_added_up_in_order() -> None:
    for name, changed in (("second", False), ("first", True), ("second", True)):
        metrics.record_pass(name, changed, 0.5)
    assert list(metrics.passes().items()) == [
        ("second", PassRecord(2, 1, 1.0)),
        ("first", PassRecord(1, 1, 0.5)),
    ]


def test_a_warning_comes_once_until_all_is_forgotten() -> None:
    def warn() -> int:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for key in ("a", "a", "b"):
                metrics.warn_once(key, f"about {key}", metrics.RecompileWarning)
        return len(caught)

    assert [warn(), warn()] == [2, 0]
    metrics.count("x")
    metrics.record_compile(RECORD)
    metrics.record_pass("p", True, 1.0)
    metrics.reset_metrics()
    assert (metrics.counters(), metrics.compiles(), metrics.passes()) == ({}, [], {})
    assert warn() == 2


def test_stages_go_to_all_that_are_open(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert not metrics.wants_stages()
        with metrics.capture() as outer:
            assert metrics.wants_stages()
            with metrics.capture() as inner:
                metrics.publish_stages(STAGES)
            metrics.publish_stages(STAGES)
        assert not metrics.wants_stages()
    assert (outer, inner) == ([STAGES, STAGES], [STAGES])
    with caplog.at_level(logging.DEBUG, "xla_dynamo.hlo"):
        assert metrics.wants_stages()
        metrics.publish_stages(STAGES)
    assert caplog.messages[-1] == "0/0 forward\nhlo"


def test_dumps_are_files_of_stages_and_numbered_passes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "dump"
    monkeypatch.setattr(metrics, "config", lambda: SimpleNamespace(dump=folder))
    monkeypatch.setattr(metrics, "_dumped", metrics._dumped.copy())
    metrics._dumped.clear()
    assert metrics.wants_stages()
    metrics.publish_stages(STAGES)
    graph = traced(lambda x: x + 1, torch.ones(2)).graph
    for name in ("specialize", "as_strided"):
        metrics.dump_pass("0/0 forward", "static", name, graph)
    contents = {path.name: path.read_text() for path in folder.iterdir()}
    assert contents == {
        "0_0_forward.fx.py": "an fx graph",
        "0_0_forward.torch.mlir": "a torch module",
        "0_0_forward.stablehlo.mlir": "a stablehlo module",
        "0_0_forward.hlo.txt": "hlo",
        "0_0_forward.01.static.specialize.fx.py": str(graph),
        "0_0_forward.02.static.as_strided.fx.py": str(graph),
    }


def test_nothing_is_dumped_uninvited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metrics, "config", lambda: SimpleNamespace(dump=None))
    metrics.publish_stages(STAGES)
    metrics.dump_pass("0/0 forward", "static", "specialize", torch.fx.Graph())
    assert list(tmp_path.iterdir()) == []
