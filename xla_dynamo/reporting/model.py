"""A run as plain data, which a page has inside as JSON.

Times are in seconds since the report began, unless their names say milliseconds.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from dataclasses import dataclass
from typing import Any

MOST = 1000  # ops of one program that are kept


@dataclass(frozen=True)
class Op:
    """A node of a program's graph.

    inputs: the ops that it takes results of, by their positions. module: of nn.Module, if known.
    """

    name: str
    op: str
    shape: str
    inputs: tuple[int, ...]
    module: str
    location: str
    code: str


@dataclass(frozen=True)
class Memory:
    """XLA's own account of a program, in bytes."""

    arguments: int
    results: int
    temporary: int
    aliased: int
    code: int


@dataclass(frozen=True)
class Program:
    """One executable.

    at: when it was made; None: before the report began. lowering, compiling: how long that took.
    cause: a name of causes.CAUSES; reason: in words.
    timed: "completion", or "launch" where the device goes on when a launch returns. total_ms,
        median_ms, slowest_ms: of its runs; the median is that of the last ones.
    graph: its ops, or the first `len(graph)` of `ops`.
    """

    name: str
    location: str
    code: str
    shapes: tuple[str, ...]
    ops: int
    at: float | None
    lowering: float
    compiling: float
    from_disk: bool
    cause: str
    reason: str
    runs: int
    timed: str
    total_ms: float
    median_ms: float
    slowest_ms: float
    memory: Memory | None
    graph: tuple[Op, ...]


@dataclass(frozen=True)
class Span:
    """A run of a program (its position in Run.programs)."""

    start: float
    end: float
    program: int


@dataclass(frozen=True)
class Use:
    """Memory at a time, in bytes: of the device's arrays, and of the process."""

    at: float
    step: int
    device: int
    process: int


@dataclass(frozen=True)
class Fallback:
    """What ran on the CPU."""

    op: str
    location: str
    reason: str
    remedy: str
    runs: int


@dataclass(frozen=True)
class Copies:
    """What was copied between host and devices; None: not measured."""

    what: str
    count: int
    bytes: int | None
    seconds: float | None


@dataclass(frozen=True)
class Run:
    """All of it.

    step_is: what counts as a step. more_programs: those of which nothing is kept but their number.
    spans: of each `every`-th run. warnings: what xla_dynamo warned of beside `fallbacks`. others:
    the pages of other processes.
    """

    title: str
    command: str
    process: str
    began: str
    seconds: float
    devices: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    steps: int
    step_is: str
    step_ms: float | None
    programs: tuple[Program, ...]
    more_programs: int
    spans: tuple[Span, ...]
    every: int
    uses: tuple[Use, ...]
    fallbacks: tuple[Fallback, ...]
    copies: tuple[Copies, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    others: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The inverse of `from_json`."""
        return dataclasses.asdict(self)


def from_json(told: dict[str, Any]) -> Run:
    """A run, from what `to_json` gave, also by way of JSON's text.

    Raises:
        KeyError, TypeError: it is none, or of another version.
    """
    return _made(Run, told)


_hints = functools.lru_cache(maxsize=64)(typing.get_type_hints)


def _made(kind: Any, told: Any) -> Any:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return typing.cast("Any", kind)(
            **{field: _made(hint, told[field]) for field, hint in hints.items()}
        )
    if origin is tuple:
        each = inside[:1] * len(told) if inside[1:] == (...,) else inside
        return tuple(_made(one, item) for one, item in zip(each, told, strict=True))
    if told is not None and inside and type(None) in inside:
        return _made(inside[0], told)
    return told
