"""What `check` says of one place in a script."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """How something that a script uses does here."""

    WORKS = "works"
    DIFFERS = "differs"
    NO_EFFECT = "no effect"
    MISSING = "not available"
    NOTE = "note"  # no name of torch_xla, but worth knowing before the script runs


@dataclass(frozen=True)
class Verdict:
    """A state, why it is so, and what to do about it; works has neither."""

    state: State
    why: str = ""
    remedy: str = ""


WORKS = Verdict(State.WORKS)


@dataclass(frozen=True)
class Finding:
    """A verdict on what is at a place, and at other lines: `name` as the documentation has it."""

    line: int
    column: int
    name: str
    verdict: Verdict
    also: tuple[int, ...] = ()
