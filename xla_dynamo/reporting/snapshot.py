"""What was gathered, and what is counted anyway -> a `Run`."""

from __future__ import annotations

import functools
import itertools
import os
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from xla_dynamo import versions
from xla_dynamo.backend import metrics, observers
from xla_dynamo.backend.metrics import CompileRecord

from .causes import cause_of
from .gather import PROGRAMS, Gatherer, Watched
from .model import Copies, Fallback, Program, Run, Span, Use
from .tally import Times

_PACKAGES = ("torch", "jax", "jaxlib", "torch-mlir")
_WARNINGS = 100
_BEFORE = 500  # programs from before the report that are shown


def run_of(gathered: Gatherer, process: str = "", others: Sequence[str] = ()) -> Run:
    """All that is known now. process: which one it is of several; others: their pages."""
    copies = _copies()  # first: sources settle which runs have ended
    gathered.digest()
    _location.cache_clear()  # the working directory may be another
    seconds = (time.perf_counter_ns() - gathered.start) / 1e9
    began = datetime.now().astimezone() - timedelta(seconds=seconds)
    known = {id(w.record) for w in gathered.programs}
    before = [r for r in metrics.compiles() if id(r) not in known][:_BEFORE]
    if gathered.more:
        before = []  # some are those of which no details are kept
    runs = _runs(gathered)
    watched = [_program(w, gathered.start, runs.get(w.number)) for w in gathered.programs]
    earlier = [_earlier(record) for record in before]
    spans, every = _spans(gathered, runs)
    steps, step_is, step_ms = _steps(gathered)
    return Run(
        title=_title(),
        command=_command(),
        process=process,
        began=began.isoformat(sep=" ", timespec="seconds"),
        seconds=seconds,
        devices=tuple(gathered.devices),
        versions=_versions(),
        steps=steps,
        step_is=step_is,
        step_ms=step_ms,
        programs=tuple(watched + earlier),
        more_programs=gathered.more,
        spans=spans,
        every=every,
        uses=tuple(
            Use(_since(gathered.start, at), step, device, own)
            for at, step, device, own in gathered.uses.items
        ),
        fallbacks=_fallbacks(),
        copies=copies,
        warnings=_warnings(),
        notes=tuple(_notes(gathered, watched + earlier)),
        others=tuple(others),
    )


def _title() -> str:
    name = sys.argv[0] if sys.argv else ""
    if name in ("", "-c", "-m"):
        return "a Python session"
    return Path(name).name


def _command() -> str:
    """The script, below the working directory, and its arguments."""
    given = [a if len(a) < 200 else f"{a[:200]}..." for a in sys.argv]
    return shlex.join([*map(_location, given[:1]), *given[1:]])


def _versions() -> tuple[tuple[str, str], ...]:
    found = [("xla_dynamo", versions.installed("xla_dynamo") or "?")]
    found += [(name, versions.installed(name) or "?") for name in _PACKAGES]
    found.append(("Python", platform.python_version()))
    return tuple(found)


def _since(start: int, at: int) -> float:
    return max(at - start, 0) / 1e9


def _runs(gathered: Gatherer) -> dict[int, Times]:
    """By a program's number, its runs as the device did them, where it goes on by itself.

    A trace that is split at ops of the CPU launches several programs, which count as one run: its
    time is that of the largest.
    """
    found: dict[int, Times] = {}
    for name, program in gathered.names.items():
        times = gathered.unnamed.get(name)
        if times is None:
            continue
        of = found.setdefault(program.number, Times())
        of.count += times.count
        of.total += times.total
        of.slowest = max(of.slowest, times.slowest)
        of.recent.extend(times.recent)
    return found


def _program(watched: Watched, start: int, runs: Times | None) -> Program:
    record = watched.record or CompileRecord("?", (), 0, 0.0, 0.0, False, "not known", "?")
    times = watched.calls if runs is None else runs
    timed = "completion" if watched.ends_in_call or runs is not None else "launch"
    return Program(
        name=record.graph,
        location=_location(record.location),
        code=watched.code,
        shapes=record.shapes,
        ops=record.nodes,
        at=None if watched.at is None else _since(start, watched.at),
        lowering=record.lowering_seconds,
        compiling=record.compile_seconds,
        from_disk=record.from_disk,
        cause=cause_of(record.reason),
        reason=record.reason,
        runs=watched.calls.count,
        timed=timed,
        total_ms=times.total / 1e6,
        median_ms=times.median() / 1e6,
        slowest_ms=times.slowest / 1e6,
        memory=watched.memory,
        graph=tuple(replace(op, location=_location(op.location)) for op in watched.graph),
    )


def _earlier(record: CompileRecord) -> Program:
    """A program that was made before the report began, and has not run since."""
    times = (record.lowering_seconds, record.compile_seconds, record.from_disk)
    cause = cause_of(record.reason)
    name, shapes, ops = record.graph, record.shapes, record.nodes
    where = _location(record.location)
    none = (0, "launch", 0.0, 0.0, 0.0, None, ())
    return Program(name, where, "", shapes, ops, None, *times, cause, record.reason, *none)


@functools.lru_cache(maxsize=4096)
def _location(text: str) -> str:
    """file:line below the working directory or in a package; a module without Dynamo's prefix."""
    text = re.sub(r"^L\[['\"]\w+['\"]\]\.?|^L__\w+?___", "", text)
    if "site-packages" in text:
        return text.rpartition("site-packages")[2].lstrip(os.sep)
    if os.path.isabs(text):
        relative = os.path.relpath(text)
        return text if relative.startswith("..") else relative
    return text


def _spans(gathered: Gatherer, runs: dict[int, Times]) -> tuple[tuple[Span, ...], int]:
    """Runs on the time line: of the device's own, where they are known, else of the calls."""
    of = {name: program.number for name, program in gathered.names.items()}
    found = [(a, b, n) for a, b, n in gathered.calls.items if n >= 0 and n not in runs]
    found += [(a, b, of[name]) for a, b, name in gathered.ends.items if name in of]
    spans = sorted(found)
    start = gathered.start
    every = max(gathered.calls.every, gathered.ends.every)
    return tuple(Span(_since(start, a), _since(start, b), n) for a, b, n in spans), every


def _steps(gathered: Gatherer) -> tuple[int, str, float | None]:
    """How many, what counts as one, and the median of the times between them in ms."""
    if gathered.steps:
        times = list(gathered.step_times)
        gaps = [b - a for a, b in itertools.pairwise(times)]
        return gathered.steps, "barriers", statistics.median(gaps) / 1e6 if gaps else None
    graphs: dict[str, list[Watched]] = {}
    for watched in gathered.programs:
        if watched.record is not None:
            graphs.setdefault(watched.record.graph, []).append(watched)
    most = max(graphs.values(), key=lambda of: sum(w.calls.count for w in of), default=[])
    if not most:
        return 0, "", None
    numbers = {w.number for w in most}
    times = sorted(a for a, _, number in gathered.calls.items if number in numbers)
    gaps = [(b - a) / gathered.calls.every for a, b in itertools.pairwise(times)]
    of = most[0].record
    name = "" if of is None else of.graph
    median = statistics.median(gaps) / 1e6 if gaps else None
    return sum(w.calls.count for w in most), f"runs of {name}", median


_FALLBACK = "fallback."


def _fallbacks() -> tuple[Fallback, ...]:
    counted = {
        name.removeprefix(_FALLBACK): count
        for name, count in metrics.counters().items()
        if name.startswith(_FALLBACK)
    }
    for source in observers.sources:
        counted.update(source.fallbacks())
    known = metrics.fallbacks()
    found = [
        Fallback(f.op, _location(f.location), f.reason, f.remedy, counted.get(f.op, 0))
        for f in known
    ]
    rest = counted.keys() - {f.op for f in known}
    found += [Fallback(op, "", "", "", counted[op]) for op in sorted(rest) if counted[op]]
    return tuple(found)


def _warnings() -> tuple[str, ...]:
    """With their remedies; of a run, the first ones."""
    given = metrics.warned()[:_WARNINGS]
    return tuple(text for category, text in given if category is not metrics.FallbackWarning)


def _copies() -> tuple[Copies, ...]:
    told = metrics.transfers()
    found = []
    if told.to_device or told.to_host:
        names = "CPU tensors to the device", "results to CPU tensors"
        found.append(Copies(names[0], told.to_device, told.bytes_to_device, None))
        found.append(Copies(names[1], told.to_host, told.bytes_to_host, None))
    for source in observers.sources:
        found += [Copies(t.what, t.count, t.bytes, t.seconds) for t in source.traffic()]
    return tuple(found)


def _notes(gathered: Gatherer, programs: Iterable[Program]) -> list[str]:
    notes = []
    if any(program.at is None for program in programs):
        notes.append("Programs without a time were compiled before the report began.")
    if gathered.more:
        notes.append(f"Of programs after the first {PROGRAMS:,} only the number is kept.")
    return notes
