"""torch_xla's debugging variables: text on stderr or in files at each compile, launch and step.

PT_XLA_DEBUG, PT_XLA_DEBUG_LEVEL, PT_XLA_DEBUG_FILE; XLA_SAVE_TENSORS_FILE, XLA_SAVE_TENSORS_FMT;
XLA_METRICS_FILE. Nothing is registered, and so nothing costs, where none of them is set.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xla_dynamo.bookkeeping import optional
from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.execution import (
    compiled_graphs,
    program_cache,
    sync,
)
from xla_dynamo.compat.values import environment

from . import ir, ir_text, metrics_report, program_analysis

_COMPILES, _LAUNCHES = 1, 2  # levels of PT_XLA_DEBUG_LEVEL that show them
_ALL = 100


@dataclass(frozen=True)
class Debugging:
    """The outputs that the variables ask for.

    level: of PT_XLA_DEBUG; 1 shows compiles, 2 launches too. report: its file, None: stderr.
    graphs, graph_format: where every launched graph goes, as "text", "dot" or "hlo".
    metrics: where the metrics report of every step goes: a file, "STDERR" or "STDOUT".
    """

    level: int
    report: str | None
    graphs: str | None
    graph_format: str
    metrics: str | None


def from_environment(variables: Mapping[str, str]) -> Debugging:
    """Read the variables."""
    on = variables.get("PT_XLA_DEBUG", "0").lower() not in ("", "0", "false")
    level = variables.get("PT_XLA_DEBUG_LEVEL") or str(_ALL if on else 0)
    return Debugging(
        level=int(level) if level.isdecimal() else _ALL,
        report=variables.get("PT_XLA_DEBUG_FILE") or None,
        graphs=variables.get("XLA_SAVE_TENSORS_FILE") or None,
        graph_format=(variables.get("XLA_SAVE_TENSORS_FMT") or "text").lower(),
        metrics=variables.get("XLA_METRICS_FILE") or None,
    )


@functools.cache
def install() -> None:
    """Have what the environment asks for registered when a device is first used, once."""
    environment.at_first_use(_register)


def _register() -> None:
    asked = from_environment(environment.read(environment.DEVICE))
    if asked.level >= _COMPILES:
        program_cache.on_compile.append(_shown(asked, program_analysis.of_compile))
        compiled_graphs.on_compile.append(_shown(asked, program_analysis.of_graph_compile))
        atexit.register(_show_summary, asked)
    if asked.level >= _LAUNCHES:
        sync.on_launch.append(_shown(asked, program_analysis.of_launch))
        compiled_graphs.on_launch.append(_shown(asked, program_analysis.of_graph_launch))
    if asked.graphs:
        sync.on_launch.append(functools.partial(_save_graph, asked))
    if asked.metrics:
        step_barrier.after_step(functools.partial(write_metrics, asked.metrics, itertools.count()))


def write(target: str | None, text: str) -> None:
    """Append to a file, or to stderr (None, "STDERR") or stdout ("STDOUT")."""
    if target in (None, "STDERR", "STDOUT"):
        print(text, end="", file=sys.stdout if target == "STDOUT" else sys.stderr, flush=True)
    else:
        with Path(target).open("a") as file:
            file.write(text)


@optional(None)
def write_metrics(target: str, steps: Iterator[int]) -> None:
    """Append the metrics report of the next step to a file, stderr or stdout."""
    write(target, f"[MetricsData; step={next(steps)}]\n{metrics_report.metrics_report()}\n")


def _shown(asked: Debugging, analysis: Callable[..., str]) -> Callable[..., None]:
    """What writes an analysis of what it is called with."""

    @optional(None)
    def show(*program: Any) -> None:
        write(asked.report, analysis(*program))

    return show


_SAVED_AS = {"text": ir.print_nodes, "dot": ir.print_dot}


@optional(None)
def _save_graph(asked: Debugging, trace: Any, program: Any) -> None:
    if asked.graph_format == "hlo":
        graph = ir_text.trace_hlo(trace, program.results)
    else:
        show = _SAVED_AS.get(asked.graph_format, ir.print_nodes)
        graph = show(ir.nodes(trace, program.results))
    whole = program_analysis.graph_hash(trace.state, program.results, trace)
    roots = ", ".join(f"{whole[:24]}{i:08x}" for i in program.results)
    frames = [f"  {frame}" for frame in program_analysis.frames()]
    lines = ["[ScheduleSyncTensorsGraph]", "TensorsGraphInfo:", *frames]
    lines += ["", f"Root Hashes: ({roots})", "", "## BEGIN_GRAPH"]
    lines += [graph, f"Graph Hash: {whole}", "", "## END_GRAPH", "", ""]
    write(f"{asked.graphs}.{trace.device.index}", "\n".join(lines))


_WARM_UP = 10  # steps in which compiling is expected
_OFTEN = 0.5  # times a step


def summary() -> list[str]:
    """What a run did too often, and the ops that ran on the CPU, in torch_xla's words."""
    lines = []
    steps = metrics_report.counter_value("MarkStep") or 0
    for name in ("CompileTime", "TransferFromDeviceTime"):
        data = metrics_report.metric_data(name)
        if data is not None and steps > _WARM_UP and data[0] > _OFTEN * steps:
            lines.append(f"{name} too frequent: {data[0]} counts during {steps} steps")
    ops = [op for op in metrics_report.executed_fallback_ops() if op != "aten::_local_scalar_dense"]
    if ops:
        lines.append(
            f"Op(s) not lowered: {', '.join(ops)}, Please open a GitHub issue with the above op "
            "lowering requests."
        )
    return [f"pt-xla-profiler: {line}" for line in lines]


@optional(None)
def _show_summary(asked: Debugging) -> None:
    write(asked.report, "".join(f"{line}\n" for line in summary()))
