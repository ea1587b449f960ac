"""A run -> text for a terminal: in rich's tables where rich is installed, else in plain columns."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import drawing, units
from .causes import CAUSES
from .model import Program, Run

_MOST = 40  # programs that are shown: those that took longest


@dataclass(frozen=True)
class Table:
    """Rows of text; columns whose titles begin with ">" are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def tables(run: Run) -> list[Table]:
    """What is shown of a run."""
    found = [Table(_title(run), ("", ""), _summary(run))]
    if run.programs:
        longest = sorted(run.programs, key=_cost, reverse=True)[:_MOST]
        shown = [p for p in run.programs if p in longest]
        columns = ("program", "your line", "why", ">compile", ">runs", ">median", ">total")
        title = "Programs" if len(shown) == len(run.programs) else f"The {_MOST} longest programs"
        found.append(Table(title, columns, [_row(p) for p in shown]))
    again = [(p.name, p.reason) for p in run.programs if p.cause != "first"][:_MOST]
    if again:
        found.append(Table("Recompiles", ("program", "because"), again))
    if run.warnings:
        found.append(Table("Advice", ("",), [(text,) for text in run.warnings]))
    if run.fallbacks:
        rows = [
            (f.op, f.location, f"{f.reason} {f.remedy}".strip(), f"{f.runs or ''}")
            for f in run.fallbacks
        ]
        found.append(Table("On the CPU", ("op", "your line", "why", ">runs"), rows))
    if run.copies:
        rows = [
            (
                c.what,
                f"{c.count:,}",
                "" if c.bytes is None else units.size(c.bytes),
                _time(c.seconds),
            )
            for c in run.copies
        ]
        found.append(Table("Copies", ("what", ">how many", ">size", ">time"), rows))
    return found


def text(run: Run, *, width: int | None = None, colour: bool | None = None) -> str:
    """All of it. By default as wide as the terminal, and in colour if stderr is one."""
    width = width or shutil.get_terminal_size((110, 40)).columns
    try:
        from rich import box, console, table
    except ImportError:
        return "\n".join(_plain(each) for each in tables(run))
    colour = sys.stderr.isatty() if colour is None else colour
    out = console.Console(
        file=io.StringIO(), width=width, force_terminal=colour, no_color=not colour, markup=False
    )
    for each in tables(run):
        shown: Any = table.Table(
            title=each.title,
            title_justify="left",
            box=box.SIMPLE_HEAD,
            show_header=any(each.columns),
        )
        for column in each.columns:
            number = column.startswith(">")
            shown.add_column(
                column.lstrip(">"), justify="right" if number else "left", no_wrap=number
            )
        for row in each.rows:
            shown.add_row(*row)
        out.print(shown)
    return out.file.getvalue()  # type: ignore[attr-defined]


def _plain(of: Table) -> str:
    rows = [tuple(column.lstrip(">") for column in of.columns), *of.rows]
    if not any(of.columns):
        rows = rows[1:]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [column.startswith(">") for column in of.columns]
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([of.title, *lines, ""])


def _title(run: Run) -> str:
    return f"{run.title}, {run.process}" if run.process else run.title


def _summary(run: Run) -> list[tuple[str, str]]:
    compiling = sum(p.lowering + p.compiling for p in run.programs)
    running = sum(p.total_ms for p in run.programs) / 1e3
    recompiles = sum(p.cause != "first" for p in run.programs)
    disk = sum(p.from_disk for p in run.programs)
    device, process = drawing.peak(run.uses)
    number = units.count(len(run.programs) + run.more_programs, "program")
    runs = units.count(sum(p.runs for p in run.programs), "run")
    rows = [
        ("device", ", ".join(run.devices) or "none was used"),
        ("in all", units.seconds(run.seconds)),
        ("compiling", f"{units.seconds(compiling)}: {number}, {disk} from disk"),
        ("recompiles", f"{recompiles}"),
        ("running", f"{units.seconds(running)}: {runs}"),
        (
            "memory",
            f"{units.size(device)} in arrays, {units.size(process)} in the process, at most",
        ),
    ]
    if run.steps:
        took = f", median {units.milliseconds(run.step_ms)}" if run.step_ms is not None else ""
        rows.append(("steps", f"{run.steps:,} ({run.step_is}){took}"))
    if not run.fallbacks:
        rows.append(("on the CPU", "nothing"))
    return rows


def _cost(program: Program) -> float:
    return program.lowering + program.compiling + program.total_ms / 1e3


def _row(p: Program) -> tuple[str, ...]:
    took = units.seconds(p.lowering + p.compiling) + (" (disk)" if p.from_disk else "")
    median = units.milliseconds(p.median_ms) if p.runs else ""
    if p.runs and p.timed == "launch":
        median += " (launch)"
    total = units.milliseconds(p.total_ms) if p.runs else ""
    return p.name, p.location, CAUSES[p.cause], took, f"{p.runs:,}", median, total


def _time(seconds: float | None) -> str:
    return "" if seconds is None else units.seconds(seconds)
