"""The lane of torch_xla's own tests: on a checkout that is made up, and what its record holds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.programs import run

from . import record
from .__main__ import run_file
from .causes import CAUSES, cause_of
from .files import Request, files_of

ROOT = Path(__file__).parents[2]
_PROGRAM = """
import os, time, unittest
import helper
import torch
import torch_xla.core.xla_model as xm
from torch_xla.core.dynamo_bridge import Inner
import torch_xla.inner.most

class Tests(unittest.TestCase):
    def test_adds(self):
        self.assertEqual((torch.ones(2, device=xm.xla_device()) + 1).sum().item(), 4)

    def test_fails(self):
        self.assertEqual(xm.xla_device().type, helper.TYPE, "a type")

    def test_inner(self):
        with self.assertRaisesRegex(AttributeError, "not here: torch_xla.core.dynamo_bridge.Inner"):
            Inner()
        self.assertFalse(hasattr(torch_xla.inner.most, "name"))

    @unittest.skip("needs a moon")
    def test_skips(self):
        pass

    def test_stays(self):
        os._exit(3)
"""


def _checkout(folder: Path) -> Request:
    tests = folder / "test"
    tests.mkdir()
    (tests / "test_devices.py").write_text(_PROGRAM)
    (tests / "helper.py").write_text("TYPE = 'cpu'")
    out = folder / "r.jsonl"
    out.touch()
    return Request(str(folder), "test_devices.py", str(out), 100)


def _rows(request: Request) -> list[dict[str, str]]:
    return [json.loads(line) for line in Path(request.out).read_text().splitlines()]


def test_each_test_has_an_outcome_also_where_it_ends_the_process(tmp_path: Path) -> None:
    request = _checkout(tmp_path)
    assert files_of(tmp_path) == ["test_devices.py"]
    codes = iter([3, 0])

    def start(request: Request) -> int:
        code = next(codes)
        if code:  # the second time, nothing is left to run
            text = json.dumps(dataclasses.asdict(request))
            run("-m", "tests.torch_xla_suite.inside", text, fails=True, cwd=ROOT)
        return code

    run_file(request, start)
    rows = _rows(request)
    outcomes = {row["test"]: (row["outcome"], row["says"]) for row in rows}
    failed = outcomes.pop("Tests.test_fails")
    assert failed[0] == "failed"
    assert "'xla' != 'cpu'" in failed[1]
    assert outcomes == {
        "Tests.test_adds": ("passed", ""),
        "Tests.test_inner": ("passed", ""),
        "Tests.test_skips": ("skipped", "needs a moon"),
        "Tests.test_stays": ("crash", "the process ended: exit code 3"),
        "": ("ended", ""),
    }
    run_file(request, start)  # which starts nothing
    assert not list(codes)


def test_a_file_that_cannot_be_run_is_one_error(tmp_path: Path) -> None:
    request = _checkout(tmp_path)
    run_file(request, lambda _: -11)
    assert [row["says"] for row in _rows(request)] == ["pytest: SIGSEGV", ""]


@pytest.mark.parametrize(
    ("code", "begins", "outcomes"),
    [
        (1, True, ["too long: takes longer than 100 s"]),
        (-6, True, ["crash: the process ended: SIGABRT"]),
        (-6, False, ["passed: ", "crash: the process ended: SIGABRT"]),
        (1, False, ["passed: "]),  # pytest: another one failed
    ],
)
def test_a_process_that_ends_badly_is_no_failure_of_a_test(
    tmp_path: Path, code: int, begins: bool, outcomes: list[str]
) -> None:
    request = _checkout(tmp_path)
    codes = iter([code, 0])

    def start(request: Request) -> int:
        row = {"file": request.file, "test": "A.b"}
        ends = {} if begins else {"outcome": "passed", "says": ""}
        ended = next(codes)
        if ended:
            Path(request.out).write_text(json.dumps(row | ends) + "\n")
        return ended

    run_file(request, start)
    rows = _rows(request)
    assert [f"{row['outcome']}: {row['says']}" for row in rows if row["test"]] == outcomes


def test_a_folder_that_is_no_checkout_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no test files of torch_xla"):
        files_of(tmp_path)


def test_a_merge_keeps_the_cause_of_a_test_that_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "PATH", tmp_path / "record.toml")
    monkeypatch.setattr(record, "PAGE", tmp_path / "page.md")
    cause = next(iter(CAUSES))
    failed = {"file": "f.py", "test": "A.b", "outcome": "failed", "says": 'said "so"'}
    rows = [failed, failed | {"test": "A.c", "outcome": "passed"}]
    assert record.merge(rows) == 'f.py::A.b: said "so"'
    record.PATH.write_text(record.PATH.read_text().replace('cause = ""', f'cause = "{cause}"'))
    assert not record.merge(rows)
    assert record.read()["f.py"]["counts"] == {"failed": 1, "passed": 1}
    assert f"| {cause} | 1 |" in record.PAGE.read_text()
    assert "A.b" in record.merge([failed | {"says": "other words"}])
    record.merge([failed | {"outcome": "passed"}])
    assert record.read() == {"f.py": {"counts": {"passed": 1}, "not_passed": {}}}


def test_every_test_that_does_not_pass_has_a_cause_and_the_page_counts_it() -> None:
    held = record.read()
    without = [
        f"{file}::{test}"
        for file, of_file in held.items()
        for test, entry in of_file["not_passed"].items()
        if entry["cause"] not in CAUSES
    ]
    assert held
    assert not without
    assert record.PAGE.read_text() == record.page(held)


def test_causes_are_found_by_words() -> None:
    assert cause_of("f.py::A.b: AssertionError: 1 != 2") == ""
    assert cause_of("f.py::A.b: No module named 'tensorflow'") == "package that is not installed"
