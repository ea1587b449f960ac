"""A number of graphs -> the disagreements among them, each shrunk to a small program.

Programs are made from seeds and run in batches; hypothesis, which would stop at the first that
fails, shrinks: it is given the numbers that made a program as if it had drawn them. A batch goes
through all doors before the next one: the second finds the rules of its ops traced.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import InMemoryExampleDatabase, choices_to_bytes
from hypothesis.errors import NoSuchExample

from . import script
from .generator import from_seed, programs
from .program import Program
from .runner import Disagreement, Tally, check
from .templates import FAMILIES


def hunt(
    graphs: int,
    seed: int,
    tallies: Mapping[str, Tally],
    report: Callable[[Disagreement], None],
    batch: int = 32,
    running: Path | None = None,
    families: Sequence[str] = tuple(FAMILIES),
    large: bool = False,
) -> int:
    """Run the programs of `graphs` seeds through the doors of `tallies`; how many it reported.

    running: a file that holds the batch under way, as long as it is: what a dead process leaves.
    """
    known: dict[str, list[frozenset[str]]] = {door: [] for door in tallies}
    for first in range(seed, seed + graphs, batch):
        seeds = range(first, min(first + batch, seed + graphs))
        made = [from_seed(s, families, large) for s in seeds]
        drawn = {id(program): numbers for program, numbers in made}
        together = [program for program, _ in made]
        for door, tally in tallies.items():
            _note(running, door, together)
            for found in check(together, door, tally):
                if any(calls <= _calls(found.program) for calls in known[door]):
                    tally.alike += 1
                    continue
                small = shrink(found, drawn[id(found.program)], families, large)
                known[door].append(_calls(small.program))
                report(small)
        _collect(freeze=first == seed)
    if running is not None:
        running.unlink(missing_ok=True)
    return sum(map(len, known.values()))


def _collect(freeze: bool) -> None:
    """Collect garbage between batches; libraries and caches stay, and are not looked at again."""
    gc.collect()
    if freeze:
        gc.freeze()


def shrink(
    found: Disagreement,
    drawn: list[int],
    families: Sequence[str] = tuple(FAMILIES),
    large: bool = False,
) -> Disagreement:
    """The smallest program that hypothesis finds on which the door disagrees.

    drawn: the numbers that made the program of `found`.
    """
    database = InMemoryExampleDatabase()
    # One number more than is drawn: hypothesis takes an exact match for one that it shrank before.
    database.save(b"found", choices_to_bytes([*drawn, 0]))
    chosen = settings(
        database=database,
        deadline=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
        phases=[Phase.reuse, Phase.shrink],
    )
    try:
        small = hypothesis.find(
            programs(families, large),
            lambda program: bool(check([program], found.door)),
            settings=chosen,
            database_key=b"found",
        )
    except NoSuchExample:
        return found
    again = check([small], found.door)
    return again[0] if again else found


def _calls(program: Program) -> frozenset[str]:
    """The functions and methods that a program calls."""
    return frozenset(re.findall(r"\.(\w+)\(", "\n".join(program.steps)))


def _note(running: Path | None, door: str, batch: list[Program]) -> None:
    if running is None:
        return
    running.parent.mkdir(parents=True, exist_ok=True)
    parts = [script.text(Disagreement(program, door, "the process died")) for program in batch]
    running.write_text("\n\n# The next program of the batch\n\n".join(parts))
