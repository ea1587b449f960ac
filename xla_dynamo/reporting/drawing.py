"""Where things are in the page's drawings: the time line, memory, and a program's graph.

Positions along the time line are in percent, so that it fits any width and can be zoomed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import units
from .model import Op, Program, Run, Span, Use

DRAWN = 60  # ops of the largest graph that is drawn; of others there is the list alone
_BOX, _ROW = 150, 62  # a node's column and row, in pixels
_BOX_WIDTH, _BOX_HEIGHT = 138, 36


@dataclass(frozen=True)
class Bar:
    """A part of a lane of the time line, in percent of it; program: its position in the run."""

    left: float
    width: float
    program: int
    kind: str
    tip: str


@dataclass(frozen=True)
class Tick:
    """A line of the time axis."""

    left: float
    text: str


@dataclass(frozen=True)
class TimeLine:
    """Compiles and runs, and memory as SVG points of a box of 1000 x 100, each by its peak."""

    compiles: tuple[Bar, ...]
    runs: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    device: str
    process: str
    seconds: float


def time_line(run: Run) -> TimeLine:
    """That of a run."""
    end = max([run.seconds, *(span.end for span in run.spans)])
    end = end or 1e-9
    compiles = [
        _bar(p.at, p.lowering + p.compiling, end, i, _kind(p), _compile_tip(p))
        for i, p in enumerate(run.programs)
        if p.at is not None
    ]
    names = [p.name for p in run.programs]
    runs = [
        _bar(s.start, s.end - s.start, end, s.program, f"p{s.program % 8}", _run_tip(s, names))
        for s in run.spans
    ]
    device, process = peak(run.uses)
    return TimeLine(
        tuple(compiles),
        tuple(runs),
        ticks(end),
        _points([(u.at, u.device) for u in run.uses], end, device),
        _points([(u.at, u.process) for u in run.uses if u.process], end, process),
        end,
    )


def _bar(start: float, length: float, end: float, program: int, kind: str, tip: str) -> Bar:
    return Bar(round(start / end * 100, 4), round(length / end * 100, 4), program, kind, tip)


def _kind(program: Program) -> str:
    return f"{program.cause}{' disk' if program.from_disk else ''}"


def _compile_tip(program: Program) -> str:
    source = "loaded from disk" if program.from_disk else "compiled"
    took = units.seconds(program.lowering + program.compiling)
    return f"{program.name}: {source} in {took}\n{program.reason}\n{program.location}"


def _run_tip(span: Span, names: Sequence[str]) -> str:
    took = units.seconds(span.end - span.start)
    return f"{names[span.program]}\n{took}, at {units.seconds(span.start)}"


def ticks(end: float, about: int = 8) -> tuple[Tick, ...]:
    """Lines at round times from 0 to `end`; the page's script does the same when it zooms."""
    raw = end / about
    base = 10 ** math.floor(math.log10(raw))
    step = next(base * n for n in (1, 2, 5, 10) if base * n >= raw)
    count = int(end / step)
    return tuple(
        Tick(round(i * step / end * 100, 3), units.seconds(i * step)) for i in range(count + 1)
    )


def _points(values: Sequence[tuple[float, int]], end: float, most: int) -> str:
    return " ".join(f"{at / end * 1000:.2f},{100 - 96 * n / (most or 1):.2f}" for at, n in values)


def peak(uses: Sequence[Use]) -> tuple[int, int]:
    """The most that the device's arrays, and the process, had at a look."""
    return max((u.device for u in uses), default=0), max((u.process for u in uses), default=0)


@dataclass(frozen=True)
class Box:
    """An op in a drawn graph, by its top left corner."""

    x: float
    y: float
    op: Op


@dataclass(frozen=True)
class Drawing:
    """A graph whose ops are in rows, each below those that it takes results of.

    edges: the SVG paths between them.
    """

    boxes: tuple[Box, ...]
    edges: tuple[str, ...]
    width: int
    height: int
    box_width: int = _BOX_WIDTH
    box_height: int = _BOX_HEIGHT


def graph(ops: Sequence[Op]) -> Drawing | None:
    """A small graph; None for one that is too large to be read, or that is not known."""
    if not ops or len(ops) > DRAWN:
        return None
    rows = _rows(ops)
    columns = _columns(ops, rows)
    widest = max(map(len, columns))
    place: dict[int, tuple[float, float]] = {}
    for y, row in enumerate(columns):
        left = (widest - len(row)) * _BOX / 2
        place.update({i: (left + x * _BOX + 6, y * _ROW + 6) for x, i in enumerate(row)})
    edges = [_edge(place[source], place[i]) for i, op in enumerate(ops) for source in op.inputs]
    boxes = tuple(Box(place[i][0], place[i][1], op) for i, op in enumerate(ops))
    return Drawing(boxes, tuple(edges), widest * _BOX, len(columns) * _ROW - _ROW + 50)


def _rows(ops: Sequence[Op]) -> list[int]:
    """The row of each op: below its inputs; an argument's is right above its first use."""
    rows = [0] * len(ops)
    for i, op in enumerate(ops):
        rows[i] = max([rows[source] + 1 for source in op.inputs], default=0)
    for i, op in enumerate(ops):
        if not op.inputs:
            uses = [rows[j] for j, other in enumerate(ops) if i in other.inputs]
            rows[i] = max(min(uses, default=1) - 1, 0)
    return rows


def _columns(ops: Sequence[Op], rows: Sequence[int]) -> list[list[int]]:
    """The ops of each row, from left to right: near those that they take results of."""
    columns: list[list[int]] = [[] for _ in range(max(rows) + 1)]
    for i, row in enumerate(rows):
        columns[row].append(i)
    at = {i: x - len(row) / 2 for row in columns for x, i in enumerate(row)}
    users: dict[int, list[int]] = {}
    for i, op in enumerate(ops):
        for source in op.inputs:
            users.setdefault(source, []).append(i)
    for _ in range(4):
        for below in (True, False):
            for row in columns if below else columns[::-1]:
                near = {i: ops[i].inputs if below else users.get(i, ()) for i in row}
                row.sort(key=lambda i: _mean([at[j] for j in near[i]], at[i]))
                at.update({i: x - len(row) / 2 for x, i in enumerate(row)})
    return columns


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _edge(source: tuple[float, float], to: tuple[float, float]) -> str:
    x, y = source[0] + _BOX_WIDTH / 2, source[1] + _BOX_HEIGHT
    x2, y2 = to[0] + _BOX_WIDTH / 2, to[1]
    middle = (y2 - y) / 2
    return f"M{x:.0f} {y:.0f}C{x:.0f} {y + middle:.0f} {x2:.0f} {y2 - middle:.0f} {x2:.0f} {y2:.0f}"


@dataclass(frozen=True)
class Group:
    """Ops that follow each other, of one module and line."""

    module: str
    location: str
    code: str
    lines: tuple[tuple[str, str], ...]  # "c = add(a, b)", its shape


def listing(ops: Sequence[Op]) -> list[Group]:
    """A graph as text, but for its arguments, by module and line of the user's program."""
    groups: list[Group] = []
    for op in ops:
        if op.op == "argument":
            continue
        taken = ", ".join(ops[i].name for i in op.inputs)
        line = f"{op.name} = {op.op}({taken})", op.shape
        last = groups[-1] if groups else None
        if last and (last.module, last.location, last.code) == (op.module, op.location, op.code):
            groups[-1] = Group(op.module, op.location, op.code, (*last.lines, line))
        else:
            groups.append(Group(op.module, op.location, op.code, (line,)))
    return groups
