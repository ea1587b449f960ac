"""What the sweep found, kept in results.json: one line for each operator.

A row holds, for each door and direction, the outcome per dtype as a letter in the order of
`cases.DTYPES`, the reasons of what is not right, and how the operator's graphs were lowered.
Everything published (docs/operators.md, expected_failures.toml) is made from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cases import DTYPES

RESULTS = Path(__file__).with_name("results.json")
LETTERS = {
    "right": "r",
    "declined": "d",
    "wrong": "w",
    "crash": "c",
    "absent": "a",
    "not declared": "-",
}
WORDS = {letter: word for word, letter in LETTERS.items()}
_NOTHING = "-" * len(DTYPES)


@dataclass
class Row:
    """An operator's results: outcome letters and reasons by "door direction", and its ways."""

    outcomes: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, dict[str, str]] = field(default_factory=dict)
    ways: dict[str, list[str]] = field(default_factory=dict)

    def outcome(self, where: str, dtype: str) -> str:
        """The outcome at "compile forward" for a dtype; "not declared" where there is none."""
        return WORDS[self.outcomes.get(where, _NOTHING)[DTYPES.index(dtype)]]

    def put(self, where: str, dtype: str, outcome: str, reason: str) -> None:
        place = DTYPES.index(dtype)
        letters = self.outcomes.get(where, _NOTHING)
        self.outcomes[where] = letters[:place] + LETTERS[outcome] + letters[place + 1 :]
        kept = self.reasons.get(where, {})
        kept.pop(dtype, None)
        if outcome not in ("right", "absent"):
            kept[dtype] = brief(reason)
        self.reasons.pop(where, None)
        if kept:
            self.reasons[where] = dict(sorted(kept.items(), key=lambda i: DTYPES.index(i[0])))


def brief(reason: str) -> str:
    """A reason without what differs from run to run: samples, addresses, lines, long advice."""
    text = re.split(
        r" Explanation: | Hint: | from user code| \(at | Set TORCH| For more info"
        r"|: Pending unbacked symbols",
        reason,
    )[0]
    text = re.sub(r"(?<=fails too\)): \(.*?\)(?=: )", "", text)
    text = re.sub(r"0x[0-9a-f]+", "0x…", text)
    text = re.sub(r'File "[^"]*", line \d+', "", text)
    return " ".join(text.split())[:240]


def load(path: Path = RESULTS) -> dict[str, Row]:
    """The rows by operator; none if there is no file."""
    if not path.exists():
        return {}
    return {op: Row(**row) for op, row in json.loads(path.read_text()).items()}


def save(rows: Mapping[str, Row], path: Path = RESULTS) -> None:
    lines = (f"{json.dumps(op)}: {_line(row)}" for op, row in sorted(rows.items()))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _line(row: Row) -> str:
    fields = {"outcomes": row.outcomes, "reasons": row.reasons, "ways": row.ways}
    return json.dumps({k: dict(sorted(v.items())) for k, v in fields.items() if v})


def merge(rows: dict[str, Row], found: Iterable[Mapping[str, Any]]) -> None:
    """Put the lines of a run's --out file in place of what `rows` says of the same cases."""
    for line in found:
        row = rows.setdefault(line["op"], Row())
        where = f"{line['door']} {line['direction']}"
        row.put(where, line["dtype"], line["outcome"], line["reason"])
        # Float32 forward runs all samples; the ways of another case are taken only without it.
        if where == "compile forward" and (line["dtype"] == "float32" or not row.ways):
            row.ways = line["ways"]
