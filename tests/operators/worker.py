"""The process that runs cases: JSON lines in, outcomes out.

A request is one case, or several in one graph, with a door and how many samples.

It may die of a case: `pool` sees that, and starts another.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import torch

from tests import quick_torch

from .cases import Case
from .doors import DOORS
from .sweep import Outcome, outcome_of
from .together import right_together


def main() -> None:
    os.environ.setdefault("XLA_DYNAMO_STRICT", "1")  # a bug in a rule is a crash, not a fallback
    # What libraries print must not come between the lines: it goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    quick_torch.make_quick()
    serve(sys.stdin, answers)


def serve(requests: TextIO, answers: TextIO) -> None:
    for answer in _answers(requests):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answers(requests: TextIO) -> Iterator[Any]:
    for number, line in enumerate(requests):
        request = json.loads(line)
        yield _right_together(request) if "together" in request else _outcome(request)
        torch.compiler.reset()
        if number % 16 == 0:  # collecting is an eighth of a case's time
            gc.collect()
        if number == 0:
            gc.freeze()  # the libraries' objects stay: looking at them takes longer than a case


def _outcome(request: dict[str, Any]) -> dict[str, Any]:
    case, door = Case(**request["case"]), DOORS[request["door"]]
    try:
        found = outcome_of(case, door, request["limit"], request["group"])
    except Exception as error:  # the sweep's own mistake: seen, not hidden
        found = Outcome("crash", f"the sweep failed: {type(error).__name__}: {error}"[:600])
    return dataclasses.asdict(found)


def _right_together(request: dict[str, Any]) -> list[dict[str, Any]]:
    cases = [Case(**case) for case in request["together"]]
    right = right_together(cases, DOORS[request["door"]], request["limit"])
    return [dataclasses.asdict(case) for case in right]


if __name__ == "__main__":
    main()
