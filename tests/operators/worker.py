"""The process that runs cases: JSON lines in (a case, a door, how many samples), outcomes out.

It may die of a case: `pool` sees that, and starts another.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
from collections.abc import Iterator
from typing import TextIO

import torch
from torch._dynamo import guards

from .cases import Case
from .doors import DOORS
from .sweep import Outcome, outcome_of


def main() -> None:
    os.environ.setdefault("XLA_DYNAMO_STRICT", "1")  # a bug in a rule is a crash, not a fallback
    # What libraries print must not come between the lines: it goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    # It times a graph's guards, for a log, after flushing the caches: a tenth of a case's time.
    guards.profile_guard_manager = lambda *_: 0.0  # pyright: ignore
    serve(sys.stdin, answers)


def serve(requests: TextIO, answers: TextIO) -> None:
    for outcome in _outcomes(requests):
        answers.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
        answers.flush()


def _outcomes(requests: TextIO) -> Iterator[Outcome]:
    for number, line in enumerate(requests):
        request = json.loads(line)
        case = Case(**request["case"])
        try:
            yield outcome_of(
                case, DOORS[request["door"]], request["limit"], request.get("group", 32)
            )
        except Exception as error:  # the sweep's own mistake: seen, not hidden
            yield Outcome("crash", f"the sweep failed: {type(error).__name__}: {error}"[:600])
        torch.compiler.reset()
        if number % 16 == 0:  # collecting is an eighth of a case's time
            gc.collect()
        if number == 0:
            gc.freeze()  # the libraries' objects stay: looking at them takes longer than a case


if __name__ == "__main__":
    main()
