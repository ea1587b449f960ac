"""What the lazy device tells a report: launches, how long they took, steps, copies, graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch_xla.core.xla_model as xm

import xla_dynamo
from xla_dynamo.backend import observers
from xla_dynamo.compat.execution import compiled_graphs, program_cache, sync
from xla_dynamo.compat.recording import execution_time, metrics, pending
from xla_dynamo.reporting import page

XLA = torch.device("xla:0")


def step(x: torch.Tensor) -> torch.Tensor:
    total = (x.cosh() * 5).sum()
    xm.mark_step()
    return total


def test_a_program_from_the_disk_has_its_graph_and_line(tmp_path: Path) -> None:
    x = torch.ones(7, 13).to(XLA)
    first = step(x).item()
    program_cache._runs.clear()
    for trace in pending.traces():
        trace.forget_programs()
    with xla_dynamo.report(tmp_path / "run.html"):
        totals = [step(x) for _ in range(3)]
        assert [total.item() for total in totals] == [first] * 3
    run = page.read(tmp_path / "run.html")
    (program,) = [p for p in run.programs if p.at is not None]
    assert (program.from_disk, program.runs, program.timed) == (True, 3, "completion")
    line = step.__code__.co_firstlineno + 1
    location = f"{Path(__file__).relative_to(Path.cwd())}:{line}"
    assert program.location == location
    assert program.code == "total = (x.cosh() * 5).sum()"
    ops = [op for op in program.graph if op.op != "argument"]
    assert [op.op for op in ops] == ["cosh", "mul", "sum"]
    assert {op.location for op in ops} == {location}
    assert run.steps == 3
    assert {c.what: c.count for c in run.copies}["of these: values read by .item()"] >= 4


def test_runs_that_end_with_the_report_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_watches", {})
    monkeypatch.setattr(execution_time.Watch, "_start", lambda self: None)  # a thread that is late
    x = torch.ones(6, 11).to(XLA)
    with xla_dynamo.report(tmp_path / "run.html"):
        step(x).item()
    (program,) = page.read(tmp_path / "run.html").programs
    assert (program.runs, program.timed) == (1, "completion")


def test_a_graph_of_torch_compile_on_the_device_is_timed_until_it_is_done(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x: x @ x, backend="xla")
    x = torch.ones(8, 8).to(XLA)
    with xla_dynamo.report(tmp_path / "run.html"):
        for _ in range(3):
            result = compiled(x)
        assert result.cpu()[0, 0] == 8
    run = page.read(tmp_path / "run.html")
    (program,) = [p for p in run.programs if p.name == "0/0 inference"]
    assert (program.runs, program.timed) == (3, "completion")
    assert program.total_ms > 0


def test_listeners_are_there_only_during_a_report(tmp_path: Path) -> None:
    lists = program_cache.on_compile, sync.on_launch, compiled_graphs.on_launch
    before = [len(each) for each in lists]
    with xla_dynamo.report(tmp_path / "run.html"):
        assert [len(each) for each in lists] == [n + 1 for n in before]
    assert [len(each) for each in lists] == before
    assert len(observers.sources) == 1
