"""Outcomes of tests -> record.toml and docs/torch_xla_suite.md.

record.toml holds the counts of each file, and the tests that do not pass with their cause. A file
that is run again replaces what the record held of it, except causes that were written by hand: one
stays while its test fails with the same words.
"""

from __future__ import annotations

import collections
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .causes import CAUSES, cause_of

PATH = Path(__file__).with_name("record.toml")
PAGE = Path(__file__).parents[2] / "docs" / "torch_xla_suite.md"
_COUNTED = ("passed", "skipped", "failed", "error", "crash", "too long")
_HEAD = """\
# What torch_xla's own tests give here

The test files of torch_xla 2.9, run on this project with the CPU, as one device, or as four where
it says so, each in a process of its own.
[CONTRIBUTING.md](../CONTRIBUTING.md#torch_xlas-tests) has the command, which writes this page.
Skipped are those that skip themselves here, most for want of a TPU or of several devices. A crash
is a test that ends the process, or the process itself where it ends badly behind its last test;
"too long" takes longer than its limit. The last two columns are what torch_xla 2.9.0 itself gives
on the CPU, in an environment of its own, for the files that were run there.
`tests/torch_xla_suite/record.toml` has each test that does not pass, with what it says.
"""


def merge(rows: Iterable[Mapping[str, str]], *, real: bool = False) -> str:
    """Put the rows of a run into the record, and write the page; what has no cause, as text.

    With `real`, they are of a run on torch_xla itself, of which only the counts are kept.
    """
    record = read()
    for file, of_file in _by_file(rows).items():
        counts = dict(collections.Counter(row["outcome"] for row in of_file))
        if real:
            record.setdefault(file, {"counts": {}, "not_passed": {}})["torch_xla"] = counts
            continue
        theirs = (
            {"torch_xla": record[file]["torch_xla"]} if "torch_xla" in record.get(file, {}) else {}
        )
        old = record.get(file, {}).get("not_passed", {})
        record[file] = {
            "counts": counts,
            **theirs,
            "not_passed": {
                row["test"]: _entry(file, row, old.get(row["test"], {}))
                for row in sorted(of_file, key=lambda row: row["test"])
                if row["outcome"] not in ("passed", "skipped")
            },
        }
    PATH.write_text(_toml(record))
    PAGE.write_text(page(record))
    return "\n".join(
        f"{file}::{test}: {entry['says']}"
        for file, of_file in record.items()
        for test, entry in of_file["not_passed"].items()
        if not entry["cause"]
    )


def read() -> dict[str, Any]:
    """The record: by file, "counts" by outcome and "not_passed" by test."""
    held = tomllib.loads(PATH.read_text()) if PATH.exists() else {}
    return {name: {"not_passed": {}} | of_file for name, of_file in held.items()}


def page(record: Mapping[str, Any]) -> str:
    """The page as Markdown: files and their counts, then causes and theirs."""
    files = [
        [
            f"`{name}`",
            *(of_file["counts"].get(outcome, 0) for outcome in _COUNTED),
            *_theirs(of_file.get("torch_xla")),
        ]
        for name, of_file in record.items()
    ]
    columns = (*_COUNTED, "torch_xla passed", "torch_xla not")
    total = ["**all**", *(sum(row[i + 1] or 0 for row in files) for i in range(len(columns)))]
    causes = collections.Counter(
        entry["cause"] for of_file in record.values() for entry in of_file["not_passed"].values()
    )
    return "\n".join(
        [
            _HEAD,
            f"| file | {' | '.join(columns)} |",
            "|---|" + "--:|" * len(columns),
            *(f"| {' | '.join(map(str, row))} |" for row in [*files, total]),
            "\nWhy those that do not pass do not:\n",
            "| cause | tests | |",
            "|---|--:|---|",
            *(
                f"| {name} | {count} | {CAUSES.get(name, '')} |"
                for name, count in causes.most_common()
            ),
            "",
        ]
    )


def _theirs(counts: Mapping[str, int] | None) -> tuple[Any, Any]:
    """What passes on torch_xla itself, and what neither passes nor is skipped; if it was run."""
    if counts is None:
        return "", ""
    passed = counts.get("passed", 0)
    return passed, sum(counts.values()) - passed - counts.get("skipped", 0)


def _by_file(rows: Iterable[Mapping[str, str]]) -> dict[str, list[Mapping[str, str]]]:
    """Rows of tests, by file; of a test that has two, the last."""
    files: dict[str, dict[str, Mapping[str, str]]] = {}
    for row in rows:
        of_file = files.setdefault(row["file"], {})
        if row.get("outcome", "ended") != "ended":
            of_file[row["test"]] = row
    return {name: list(tests.values()) for name, tests in files.items()}


def _entry(file: str, row: Mapping[str, str], old: Mapping[str, str]) -> dict[str, str]:
    says = row["says"][:160]
    cause = old.get("cause", "") if old.get("says") == says else ""
    cause = cause or cause_of(f"{file}::{row['test']}: {row['says']}")
    return {"outcome": row["outcome"], "cause": cause, "says": says}


def _toml(record: Mapping[str, Any]) -> str:
    lines = [
        "# Written by `python -m tests.torch_xla_suite --merge`; causes may be written by hand."
    ]
    for file, of_file in record.items():
        lines += ["", f"[{_text(file)}]", f"counts = {_table(of_file['counts'])}"]
        if "torch_xla" in of_file:
            lines += [f"torch_xla = {_table(of_file['torch_xla'])}"]
        if of_file["not_passed"]:
            lines += ["", f"[{_text(file)}.not_passed]"]
        lines += [
            f"{_text(test)} = {_table(entry)}" for test, entry in of_file["not_passed"].items()
        ]
    return "\n".join(lines) + "\n"


def _table(entry: Mapping[str, Any]) -> str:
    pairs = (
        f"{_text(k) if ' ' in k else k} = {_text(v) if isinstance(v, str) else v}"
        for k, v in entry.items()
    )
    return f"{{ {', '.join(pairs)} }}"


def _text(words: str) -> str:
    return json.dumps(words)  # a basic string of TOML, too
