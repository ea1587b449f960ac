"""Runs a shard of the sweep, or merges results into the record.

    python -m tests.operators --shard 3/8 --dtypes float32 --directions forward --out r.jsonl
    python -m tests.operators --merge r.jsonl ...    # rewrites the record and docs/operators.md

A run appends a line for each case as it ends, and skips cases that the file already holds, other
than those whose outcome is named by --redo.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from . import record
from .cases import DIRECTIONS, DTYPES, SEED, Case, cases, recorded_samples, shard
from .doors import DOORS
from .pool import sweep
from .publish import EXPECTED, PAGE, page, toml


def main() -> None:
    options = _parse()
    if options.merge:
        publish(options.merge)
        return
    run(options)


def publish(paths: Sequence[Path]) -> None:
    """Put results into the record, and rewrite what is made of it."""
    rows = record.load()
    for path in paths:
        found = [json.loads(line) for line in path.read_text().splitlines()]
        if any(row.get("seed") for row in found):
            raise SystemExit(f"{path} holds results of other samples than the record is made of")
        record.merge(rows, found)
    record.save(rows)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(rows))
    EXPECTED.write_text(toml(rows))


def run(options: argparse.Namespace) -> None:
    """Run a shard, and append a line to options.out for each case."""
    chosen = cases(options.dtypes, options.directions)
    if options.ops:
        chosen = [case for case in chosen if case.op in options.ops]
    done = _done(options.out, options.redo)
    todo = [case for case in shard(chosen, options.shard) if case not in done]
    os.environ[SEED] = str(options.seed)
    counts: collections.Counter[str] = collections.Counter()
    with options.out.open("a") as file:
        outcomes = sweep(todo, options.door, _limit(options.samples, options.door), options.timeout)
        for number, (case, outcome) in enumerate(outcomes, 1):
            row = {**dataclasses.asdict(case), "door": options.door, **dataclasses.asdict(outcome)}
            row |= {"seed": options.seed} if options.seed else {}
            file.write(json.dumps(row) + "\n")
            file.flush()
            counts[outcome.outcome] += 1
            if outcome.outcome not in ("right", "absent"):
                print(f"{case}: {outcome.outcome}: {outcome.reason[:200]}", flush=True)
            if number % 50 == 0 or number == len(todo):
                print(f"{number} of {len(todo)}: {dict(counts)}", flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.operators", description=__doc__)
    parser.add_argument("--merge", nargs="+", type=Path, help="files that runs wrote")
    parser.add_argument("--shard", default="1/1", help="which part of how many: 3/8")
    parser.add_argument("--dtypes", default=",".join(DTYPES), type=_list)
    parser.add_argument("--directions", default=",".join(DIRECTIONS), type=_list)
    parser.add_argument("--ops", default=[], type=_list, help="only these")
    parser.add_argument("--door", default="compile", choices=sorted(DOORS))
    parser.add_argument("--samples", type=int, help="at most so many a case; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="other samples; they are not merged")
    parser.add_argument("--redo", default=[], type=_list, help="outcomes: wrong,crash")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a case may take")
    parser.add_argument("--out", type=Path, default=Path("results.jsonl"))
    return parser.parse_args()


def _list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _limit(samples: int | None, door: str) -> Callable[[Case], int | None]:
    """How many samples of a case to run: those of the record, unless a number was given."""
    if samples is not None:
        return lambda case: samples or None
    return lambda case: recorded_samples(case, door)


def _done(path: Path, redo: Sequence[str]) -> set[Case]:
    """The cases that the file holds, after dropping its rows of the outcomes `redo`."""
    if not path.exists():
        return set()
    rows = list(map(json.loads, path.read_text().splitlines()))
    kept = [row for row in rows if row["outcome"] not in redo]
    path.write_text("".join(json.dumps(row) + "\n" for row in kept))
    return {Case(row["op"], row["dtype"], row["direction"]) for row in kept}


if __name__ == "__main__":
    main()
