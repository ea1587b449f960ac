"""Reports as text, in colour where rich is installed and it goes to a terminal; and as JSON."""

from __future__ import annotations

import json
import shutil
import textwrap
from typing import Any

from .findings import State
from .report import Report, count

_STYLES = {
    State.WORKS: "green",
    State.DIFFERS: "yellow",
    State.NO_EFFECT: "dim",
    State.MISSING: "bold red",
    State.NOTE: "cyan",
}
_INDENT = 4


def text(reports: list[Report]) -> None:
    """Print what is to say of each source, then the sum."""
    told = [report for report in reports if report.is_of_torch_xla]
    for report in told:
        _print(str(report.source.path), "bold")
        _print_report(report)
        _print("")
    _print(_sum(reports, told), "bold")


def _print_report(report: Report) -> None:
    if report.error:
        _print(f"{'':{_INDENT}}{report.error}", _STYLES[State.MISSING])
    for finding in report.findings:
        verdict, source = finding.verdict, report.source
        also = ", ".join(source.place(line) for line in finding.also)
        heading = f"{source.place(finding.line):>{_INDENT}}  {verdict.state:<14}{finding.name}"
        _print(heading + f"  (also {also})" * bool(also), _STYLES[verdict.state])
        _print(_wrapped(verdict.why))
        if verdict.remedy:
            _print(_wrapped(f"-> {verdict.remedy}"))
    if report.works:
        names = len(report.works)
        _print(f"{'':{_INDENT}}  {State.WORKS:<14}{names} name{'s' * (names != 1)}", "green")


def _wrapped(line: str) -> str:
    indent = " " * (_INDENT + 16)
    width = max(60, min(100, shutil.get_terminal_size().columns))
    return textwrap.fill(
        line, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False
    )


def _sum(reports: list[Report], told: list[Report]) -> str:
    if not told:
        return f"No name of torch_xla in {_files(len(reports))}."
    counts = count(reports)
    works = counts.pop(State.WORKS)
    others = ", ".join(f"{number} x {state}" for state, number in counts.items() if number)
    broken = sum(bool(report.error) for report in reports)
    unread = f"; {_files(broken)} not read" if broken else ""
    of_them = f"{works} of torch_xla's names work" if works != 1 else "1 of torch_xla's names works"
    return f"{_files(len(reports))}: {of_them}{'; ' * bool(others)}{others}{unread}."


def _files(number: int) -> str:
    return f"{number} file{'s' * (number != 1)}"


def _print(line: str, style: str = "") -> None:
    try:
        from rich.console import Console
    except ImportError:
        print(line)
        return
    Console(soft_wrap=True, highlight=False).print(line, style=style or None, markup=False)


def as_json(reports: list[Report]) -> None:
    """Print an object: `files`, by place, and `counts`, by state."""
    files = [_object(report) for report in reports if report.is_of_torch_xla]
    counts = {state.value: number for state, number in count(reports).items()}
    whole = {"files": files, "counts": counts, "complete": all(r.is_complete() for r in reports)}
    print(json.dumps(whole, indent=1))


def _object(report: Report) -> dict[str, Any]:
    findings = [
        {
            "place": report.source.place(finding.line),
            "line": finding.line,
            "also": list(finding.also),
            "column": finding.column,
            "name": finding.name,
            "state": finding.verdict.state.value,
            "why": finding.verdict.why,
            "remedy": finding.verdict.remedy,
        }
        for finding in report.findings
    ]
    found: dict[str, Any] = {"path": str(report.source.path), "findings": findings}
    found["works"] = report.works
    return found | ({"error": report.error} if report.error else {})
