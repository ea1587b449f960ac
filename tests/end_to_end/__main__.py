"""Runs torch-mlir's end-to-end programs through a door, each in a process that may die of it.

    python -m tests.end_to_end ~/torch-mlir --door lazy --out r.jsonl

appends a line for each program as it ends, and skips those that the file already holds.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import re
import sys
from pathlib import Path

import torch

from ..operators.cases import Case
from ..operators.pool import Worker
from .judged import outcome_of
from .suite import load

# One that never ends, by intention; it tests the suite's own time limit.
_ENDLESS = "TimeOutModule_basic"


def main() -> None:
    options = _parse()
    if options.serve:
        serve(options.checkout)
        return
    names = [n for n in sorted(load(options.checkout)) if n != _ENDLESS]
    out: Path = options.out
    done = (
        {json.loads(line)["name"] for line in out.read_text().splitlines()} if out.exists() else ()
    )
    todo = [name for name in names if name not in done and re.search(options.only, name)]
    command = [sys.executable, "-m", "tests.end_to_end", str(options.checkout.resolve()), "--serve"]
    worker = Worker(options.door, options.timeout, command)
    counts: collections.Counter[str] = collections.Counter()
    try:
        with out.open("a") as file:
            for name in todo:
                outcome = worker.run(Case(name, "float32", "forward"), None)
                row = {"name": name, "door": options.door, **dataclasses.asdict(outcome)}
                file.write(json.dumps(row) + "\n")
                file.flush()
                counts[outcome.outcome] += 1
                if outcome.outcome not in ("right", "absent"):
                    print(f"{name}: {outcome.outcome}: {outcome.reason[:200]}", flush=True)
    finally:
        worker.stop()
    print(f"{len(todo)} programs: {dict(counts)}")


def serve(checkout: Path) -> None:
    """Answer the names of programs on stdin with their outcomes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the lines
    torch.set_num_threads(1)
    programs = load(checkout)
    for line in sys.stdin:
        request = json.loads(line)
        outcome = outcome_of(programs[request["case"]["op"]], request["door"])
        answers.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
        answers.flush()
        torch.compiler.reset()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.end_to_end", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of llvm/torch-mlir")
    parser.add_argument("--door", default="compile", choices=["compile", "lazy"])
    parser.add_argument("--only", default="", help="names that match this regular expression")
    parser.add_argument("--out", type=Path, default=Path("end_to_end.jsonl"))
    parser.add_argument("--timeout", type=float, default=300, help="seconds a program may take")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
