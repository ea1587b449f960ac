"""The published record is complete, and is what results.json generates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.operators.__main__ import publish
from tests.operators.cases import DTYPES, cases
from tests.operators.publish import EXPECTED, PAGE, expected, failures, page, toml
from tests.operators.record import Row, brief, load, merge, save

# The columns of the page that the sweep has been run for: door, direction, dtype.
PUBLISHED = [
    *(f"compile forward {dtype}" for dtype in DTYPES),
    "compile backward float32",
    "compile backward float64",
    *(f"lazy forward {dtype}" for dtype in DTYPES),
    *(f"{door} {way} float32" for door in ("bucket", "batch") for way in ("forward", "backward")),
    "tpu forward float32",
    "tpu forward bfloat16",
    "tpu backward float32",
    "lazy backward float32",
    "lazy backward float64",
]


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(load()), "python -m tests.operators --merge rewrites it"


def test_the_expected_failures_are_current() -> None:
    assert EXPECTED.read_text() == toml(load()), "python -m tests.operators --merge rewrites them"


def test_the_expected_failures_are_the_failures() -> None:
    found = {(where, op, dtype): outcome for op, where, dtype, outcome, _ in failures(load())}
    assert expected() == found


@pytest.mark.parametrize("column", PUBLISHED)
def test_every_case_was_run(column: str) -> None:
    door, direction, dtype = column.split()
    rows = load()
    outcomes = {
        case.op: rows[case.op].outcome(f"{door} {direction}", dtype)
        for case in cases([dtype], [direction])
    }
    assert outcomes
    assert "not declared" not in outcomes.values()


@pytest.mark.parametrize("column", PUBLISHED)
def test_nothing_crashes(column: str) -> None:
    door, direction, dtype = column.split()
    crashed = [
        op for op, row in load().items() if row.outcome(f"{door} {direction}", dtype) == "crash"
    ]
    assert not crashed


def test_a_run_replaces_what_the_record_held(tmp_path: Path) -> None:
    line = {"op": "add", "dtype": "int64", "direction": "forward", "door": "compile", "ways": {}}
    rows: dict[str, Row] = {}
    merge(rows, [{**line, "outcome": "wrong", "reason": 'says "no" at 0xff'}])
    assert list(failures(rows)) == [
        ("add", "compile forward", "int64", "wrong", 'says "no" at 0x…')
    ]
    (tmp_path / "t.toml").write_text(toml(rows))
    assert expected(tmp_path / "t.toml") == {("compile forward", "add", "int64"): "wrong"}
    merge(rows, [{**line, "outcome": "right", "reason": ""}])
    assert list(failures(rows)) == []
    save(rows, tmp_path / "r.json")
    assert load(tmp_path / "r.json") == rows


def test_the_doors_share_a_table() -> None:
    line = {"op": "add", "dtype": "int64", "direction": "forward", "ways": {}, "reason": "why"}
    rows: dict[str, Row] = {}
    merge(rows, [{**line, "door": "compile", "outcome": "right"}])
    assert "## Counts: lazy tensors" not in page(rows)
    assert "| `add` | no op | ✓ |" in page(rows)
    merge(rows, [{**line, "door": "lazy", "outcome": "right"}])
    assert "| `add` | no op | ✓ |" in page(rows)
    merge(rows, [{**line, "door": "lazy", "outcome": "declined"}])
    assert "| `add` | no op | ✓ lazy: cpu |" in page(rows)
    counts = page(rows).split("## Counts: lazy tensors, forward")[1].splitlines()
    assert counts[4] == "| int64 | 0 | 1 | 0 | 0 | 1 | 0.0 |"
    assert list(failures(rows)) == [("add", "lazy forward", "int64", "declined", "why")]
    assert page(rows).count("## Forward") == 1


def test_reasons_are_brief() -> None:
    assert (
        brief("Data dependent operator Explanation: long Hint: more") == "Data dependent operator"
    )
    told = "PyTorch cannot trace it (aot_eager fails too): (int64[], r=(1, 2)): UserError: no data"
    assert brief(told) == "PyTorch cannot trace it (aot_eager fails too): UserError: no data"
    assert brief("no such dtype. Convert it. (at a.py:7 (x.to(y)))") == "no such dtype. Convert it."


def test_results_of_other_samples_are_not_merged(tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text(json.dumps({"op": "add", "outcome": "right", "seed": 7}) + "\n")
    with pytest.raises(SystemExit, match="other samples"):
        publish([file])
