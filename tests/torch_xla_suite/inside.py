"""Runs one test file of torch_xla in this process, and writes down its outcomes.

A line of JSON is written before a test begins and another when it has ended: a test without the
second one has taken the process with it. What has a line already is not run again.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, TextIO

import pytest
import torch

from .absent import stand_in
from .files import Request

# What a test is said to be where its parts (set-up, sub-tests, itself) come out differently.
_WORST = ("failed", "error", "skipped", "passed")
_WITHOUT = ("cacheprovider", "timeout", "xdist", "warnings", "randomly")
_ARGUMENTS = (
    *("-q", "--tb=short", "--noconftest", "--import-mode=importlib"),
    *(word for plugin in _WITHOUT for word in ("-p", f"no:{plugin}")),
)


def run(request: Request) -> int:
    """Run the file's tests that have no row, and append theirs; pytest's exit code."""
    file, out, tests = request.file, Path(request.out), Path(request.checkout) / "test"
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if not request.real:
        _import_torchvision()
        importlib.import_module("xla_dynamo.compat")

    # As for a script: the files import what lies beside them, and parse the command line.
    sys.path[:0] = [str((tests / file).parent), str(tests)]
    sys.argv = [str(tests / file)]
    if importlib.util.find_spec("absl"):
        importlib.import_module("absl.flags").FLAGS.mark_as_parsed()
    if not request.real:
        stand_in(tests / file)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    done = {row["test"] for row in rows if row["file"] == file}
    with out.open("a") as lines:
        where = [f"--rootdir={request.checkout}", "-c", "/dev/null", str(tests / file)]
        writer = _Writer(file, done, lines, request.seconds)
        code = pytest.main([*_ARGUMENTS, *where], plugins=[writer])
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code)


def _import_torchvision() -> None:
    """A torchvision of another build of torch: its models work, its operators in C++ are not there.

    It gives two of them a shape when it is imported, which therefore have to have a schema.
    """
    try:
        import torchvision  # type: ignore[import-not-found]
    except ImportError:
        return
    except RuntimeError:
        torch.library.define("torchvision::nms", "(Tensor a, Tensor b, float c) -> Tensor")
        torch.library.define("torchvision::qnms", "(Tensor a, Tensor b, float c) -> Tensor")
        import torchvision  # type: ignore[import-not-found]  # noqa: F401


class _Writer:
    """A plug-in of pytest: leaves out what is done, limits the time, writes what comes out."""

    def __init__(self, file: str, done: set[str], lines: TextIO, seconds: float) -> None:
        self._file, self._done, self._lines, self._seconds = file, done, lines, seconds
        self._parts: list[tuple[str, str]] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if _name(item.nodeid) not in self._done]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write("(file)", outcome="error", says=_says(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._parts = []
        self._write(_name(nodeid))
        faulthandler.dump_traceback_later(self._seconds, exit=True)  # with the code TOO_LONG

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = "error" if report.failed and report.when != "call" else report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "passed"  # as the file expects
        self._parts.append((outcome, "" if report.passed else _says(report)))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        faulthandler.cancel_dump_traceback_later()
        outcome, says = min(self._parts, key=lambda part: _WORST.index(part[0]))
        self._write(_name(nodeid), outcome=outcome, says=says)

    def _write(self, test: str, **row: str) -> None:
        self._lines.write(json.dumps({"file": self._file, "test": test} | row) + "\n")
        self._lines.flush()


def _name(nodeid: str) -> str:
    return nodeid.partition("::")[2].replace("::", ".")


def _says(report: Any) -> str:
    """What the error of a report says in its first line; the reason, where a test was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")[:200]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    lines = [line.removeprefix("E ").strip() for line in text.splitlines() if line.strip()]
    if crash is None:  # of a file: a traceback, its error in the last lines
        lines = lines[-1:]
    return " ".join(lines[:2])[:300]


if __name__ == "__main__":
    sys.exit(run(Request(**json.loads(sys.argv[1]))))
