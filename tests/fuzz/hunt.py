"""A number of graphs -> the disagreements among them, each shrunk to a small program.

Programs are generated first and run in batches; hypothesis would stop at the first that fails. To
shrink one, hypothesis generates the same programs again from the same seed, is told that this one
fails, and shrinks it from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import NoSuchExample

from . import script
from .generator import programs
from .program import Program
from .runner import Disagreement, Tally, check

_CHUNK = 1500  # programs generated from one seed: what a shrink generates again

# Run before programs are generated. Hypothesis also draws constants that it finds in the modules
# of the project: they must all be imported for a seed to give the same programs again.
_FIRST = Program(
    ("x = torch.tensor([1.0, 2.0], dtype=torch.float64, device=device).requires_grad_()",),
    ("y = torch.cumsum(x, 0).exp()", "z = x.argmax(0)"),
    ("y", "z"),
    gradient=True,
)


def hunt(
    graphs: int,
    seed: int,
    door: str,
    tally: Tally,
    report: Callable[[Disagreement], None],
    batch: int = 8,
    running: Path | None = None,
) -> int:
    """Run `graphs` different programs through `door`; returns how many disagreements it reported.

    running: a file that holds the batch under way, as long as it is: what a dead process leaves.
    """
    check([_FIRST], door)
    known: list[frozenset[str]] = []
    seen: set[str] = set()
    reported = 0
    while tally.graphs < graphs:
        seed += 1_000_000
        chunk = [p for p in generate(_CHUNK, seed) if p.text() not in seen]
        seen.update(p.text() for p in chunk)
        del chunk[graphs - tally.graphs :]
        for start in range(0, len(chunk), batch):
            together = chunk[start : start + batch]
            _note(running, door, together)
            for found in check(together, door, tally):
                if any(calls <= _calls(found.program) for calls in known):
                    tally.alike += 1
                    continue
                small = shrink(found, seed)
                known.append(_calls(small.program))
                reported += 1
                report(small)
    if running is not None:
        running.unlink(missing_ok=True)
    return reported


def generate(count: int, seed: int) -> list[Program]:
    """Different programs, always the same for a seed."""
    made: dict[str, Program] = {}

    def keep(program: Program) -> bool:
        made.setdefault(program.text(), program)
        return False

    _find(keep, count, seed)
    return list(made.values())


def shrink(found: Disagreement, seed: int) -> Disagreement:
    """The smallest program that hypothesis finds on which the door disagrees, from `found` on."""
    target = found.program.text()
    last = found

    def disagrees(program: Program) -> bool:
        nonlocal last
        if last is found and program.text() != target:
            return False
        again = check([program], found.door)
        if again:
            last = again[0]
        return bool(again)

    small = _find(disagrees, _CHUNK, seed)
    again = check([small], found.door) if small is not None else []
    return again[0] if again else found


def _find(condition: Callable[[Program], bool], count: int, seed: int) -> Program | None:
    chosen = settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
        phases=[Phase.generate, Phase.shrink],
    )
    try:
        return hypothesis.find(programs(), condition, settings=chosen, random=Random(seed))
    except NoSuchExample:
        return None


def _calls(program: Program) -> frozenset[str]:
    """The functions and methods that a program calls."""
    return frozenset(re.findall(r"\.(\w+)\(", "\n".join(program.steps)))


def _note(running: Path | None, door: str, batch: list[Program]) -> None:
    if running is None:
        return
    running.parent.mkdir(parents=True, exist_ok=True)
    parts = [script.text(Disagreement(program, door, "the process died")) for program in batch]
    running.write_text("\n\n# The next program of the batch\n\n".join(parts))
