"""When a report begins and ends, what is in it, and its files."""

from __future__ import annotations

import logging
import os
import signal
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import xla_dynamo
from tests.backend.separate_memory import separate_memory as separate_memory
from tests.programs import outcome
from xla_dynamo import bookkeeping
from xla_dynamo.backend import metrics, observers
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.config import config
from xla_dynamo.reporting import page, session

SCRIPT = """
import sys
import own
import torch
import torch_xla.core.xla_model as xm

device = xm.xla_device()
layer = torch.nn.Linear(4, 2).to(device)
for rows in (16, 16, 16, 7):
    layer(torch.ones(rows, 4).to(device)).square().mean().backward()
    xm.mark_step()
twice = torch.library.custom_op("script::twice", mutates_args=())(own.twice)
twice.register_fake(torch.empty_like)
compiled = torch.compile(lambda x: twice(x.sin()).cos(), backend="xla")
for _ in range(2):
    compiled(torch.ones(3, 4))
{end}
"""


def reported(folder: Path, end: str, *arguments: str) -> tuple[int, str, Path]:
    """A run of the script with a report: its exit code, what it printed, the page."""
    script, out = folder / "train.py", folder / "pages" / "run.html"
    script.write_text(textwrap.dedent(SCRIPT).format(end=end))
    (folder / "own.py").write_text(
        "from torch import Tensor\n\ndef twice(x: Tensor) -> Tensor:\n    return x * 2\n"
    )
    given = ("-m", "xla_dynamo", "run", "--report", str(out), str(script), *arguments)
    code, printed = outcome(*given, cwd=folder)
    return code, printed, out


def test_both_ways_in_are_on_the_page_of_a_script_that_raises(tmp_path: Path) -> None:
    code, printed, out = reported(tmp_path, "raise ValueError(sys.argv[1:])", "--report", "own")
    assert code == 1
    assert "ValueError: ['--report', 'own']" in printed  # the script's own arguments are its own
    assert f"the report of this run is {out}" in printed
    run = page.read(out)
    assert (run.title, run.steps, run.step_is, run.process) == ("train.py", 4, "barriers", "")
    lazy = [p for p in run.programs if p.name.startswith("xla:0")]
    assert sum(p.runs for p in lazy) == 4
    sizes = [p for p in lazy if p.cause == "sizes"]
    assert "float32[16, 4], is float32[7, 4]" in sizes[0].reason
    assert sizes[0].location == "train.py:10"
    assert sizes[0].code.startswith("layer(torch.ones(rows, 4)")
    assert {op.location for op in sizes[0].graph if op.op != "argument"} == {"train.py:10"}
    compiled = [p for p in run.programs if p not in lazy]
    assert next(p.runs for p in compiled if p.at is not None) == 2
    assert all(p.timed == "completion" and p.total_ms > 0 for p in run.programs if p.runs)
    assert all(p.memory for p in run.programs)
    (fallback,) = run.fallbacks
    assert (fallback.op, fallback.runs) == ("script::twice", 2)
    assert fallback.location.startswith("train.py:14 (")
    assert next(c.count for c in run.copies if c.what.startswith("uploads")) >= 6
    assert max(use.device for use in run.uses) > 0
    assert len(run.spans) >= 6
    assert all(0 <= s.start <= s.end <= run.seconds for s in run.spans)


def test_a_script_that_is_interrupted_has_its_page(tmp_path: Path) -> None:
    script, out = tmp_path / "stopped.py", tmp_path / "run.html"
    # A shell starts what runs in the background with SIGINT ignored.
    lines = (
        "import os, signal",
        "signal.signal(signal.SIGINT, signal.default_int_handler)",
        "os.kill(os.getpid(), signal.SIGINT)",
    )
    script.write_text("\n".join(lines))
    given = ("-m", "xla_dynamo", "run", f"--report={out}", str(script))
    code, printed = outcome(*given, cwd=tmp_path, fresh=True)
    assert code == -signal.SIGINT
    assert "KeyboardInterrupt" in printed
    run = page.read(out)
    assert (run.title, run.programs) == ("stopped.py", ())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_each_process_of_a_launch_has_its_page(method: str, tmp_path: Path) -> None:
    script, out = tmp_path / "launch.py", tmp_path / "run.html"
    script.write_text(
        textwrap.dedent(f"""
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp

        def step(rank):
            x = torch.full((2 + rank,), 1.0 + rank, device=xm.xla_device())
            total = xm.all_reduce(xm.REDUCE_SUM, x.sum())
            xm.mark_step()

        if __name__ == "__main__":
            xmp.spawn(step, nprocs=2, start_method="{method}")
        """)
    )
    given = ("-m", "xla_dynamo", "run", "--report", str(out), str(script))
    code, printed = outcome(*given, cwd=tmp_path, fresh=True)
    assert code == 0, printed
    assert sorted(p.name for p in tmp_path.glob("*.html")) == [
        "run.html",
        "run.rank0.html",
        "run.rank1.html",
    ]
    assert page.read(out).others == ("run.rank0.html", "run.rank1.html")
    for rank in range(2):
        run = page.read(tmp_path / f"run.rank{rank}.html")
        assert (run.process, run.steps) == (f"rank {rank}", 1)
        assert any(op.shape == f"float32[{2 + rank}]" for p in run.programs for op in p.graph)


@pytest.mark.filterwarnings("ignore:What to do")
def test_the_report_of_a_block(tmp_path: Path) -> None:
    layer = nn.Linear(4, 2)
    compiled = torch.compile(layer, backend="xla")
    compiled(torch.ones(3, 4)).sum().backward()
    with xla_dynamo.report(tmp_path / "run.html") as report:
        for _ in range(3):
            compiled(torch.ones(3, 4)).sum().backward()
        compiled(torch.ones(5, 4)).sum().backward()
        assert "0/0 forward" in str(report)
        metrics.warn_once("key", "What to do.", xla_dynamo.BucketWarning)
    compiled(torch.ones(3, 4)).sum().backward()
    run = page.read(tmp_path / "run.html")
    runs = {(p.name, p.at is not None): p.runs for p in run.programs}
    assert runs[("0/0 forward", False)] == runs[("0/0 backward", False)] == 3
    assert runs[("0/1 forward", True)] == 1
    assert {p.cause for p in run.programs if p.at is not None} == {"sizes"}
    assert run.warnings == ("What to do.",)
    (module,) = {op.module for p in run.programs for op in p.graph if op.op == "addmm"}
    assert module == "(the model) (Linear)"
    assert run.notes == ("Programs without a time were compiled before the report began.",)


def test_a_report_in_a_notebook(tmp_path: Path) -> None:
    with xla_dynamo.report(tmp_path / "run.html") as report:
        pass
    shown = report._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert shown.count('"') == 4  # what is inside is escaped


def test_a_report_that_the_environment_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_DYNAMO_REPORT", str(tmp_path / "run.html"))
    monkeypatch.setenv("_XLA_DYNAMO_REPORT_FIRST", "")  # is taken back, whatever it becomes
    monkeypatch.delenv("_XLA_DYNAMO_REPORT_FIRST")
    session.begin_if_asked()
    first = observers.current
    session.begin_if_asked()
    assert observers.current is first is not None
    session._end()
    assert page.read(tmp_path / "run.html").process == ""


def test_after_a_report_nothing_is_told(tmp_path: Path) -> None:
    before = pjrt.Executable.__call__
    with xla_dynamo.report(tmp_path / "run.html"):
        assert pjrt.Executable.__call__ is not before
    assert observers.current is None
    assert pjrt.Executable.__call__ is before


def test_a_second_report_ends_the_first(tmp_path: Path) -> None:
    first = xla_dynamo.report(tmp_path / "first.html")
    with xla_dynamo.report(tmp_path / "second.html") as second:
        assert (tmp_path / "first.html").exists()
        first.close()  # does nothing
        assert observers.current is second._gathered


def test_a_report_that_fails_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bookkeeping, "config", lambda: replace(config(), strict=False))
    monkeypatch.setattr(bookkeeping, "_told", {})

    def fail(*args: Any) -> None:
        raise KeyError("a template")

    monkeypatch.setattr(page, "html", fail)
    with caplog.at_level(logging.WARNING), xla_dynamo.report(tmp_path / "run.html"):
        result = torch.compile(lambda x: x + 1, backend="xla")(torch.ones(2))
    assert torch.equal(result, torch.full((2,), 2.0))
    assert "A report is left out: xla_dynamo.reporting.session.Report.close failed" in caplog.text
    assert observers.current is None


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        xla_dynamo.report(tmp_path / "file" / "run.html")
    assert observers.current is None


def test_names_of_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with xla_dynamo.report(tmp_path / "run.html") as report:
        assert report.path.name == "run.html"
        monkeypatch.setenv("_XLA_DYNAMO_REPORT_FIRST", "1")
        assert report.path.name == f"run.pid{os.getpid()}.html"
        monkeypatch.setenv("WORLD_SIZE", "4")
        monkeypatch.setenv("RANK", "3")
        assert report.path.name == "run.rank3.html"
        monkeypatch.setattr(observers, "rank", 2)
        assert report.path.name == "run.rank2.html"


def test_copies_to_an_accelerator(tmp_path: Path, separate_memory: None) -> None:
    compiled = torch.compile(nn.Linear(4, 2), backend="xla")
    with xla_dynamo.report(tmp_path / "run.html"):
        for _ in range(3):
            compiled(torch.ones(3, 4)).sum().backward()
    copies = {c.what: (c.count, c.bytes) for c in page.read(tmp_path / "run.html").copies}
    told = xla_dynamo.transfers()
    assert copies["CPU tensors to the device"] == (told.to_device, told.bytes_to_device)
    assert copies["results to CPU tensors"] == (told.to_host, told.bytes_to_host)
    assert told.to_host >= 6
