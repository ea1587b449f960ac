"""torch_xla's debugging variables: text on stderr or in files at each compile, launch and step.

PT_XLA_DEBUG, PT_XLA_DEBUG_LEVEL, PT_XLA_DEBUG_FILE; XLA_SAVE_TENSORS_FILE, XLA_SAVE_TENSORS_FMT;
XLA_METRICS_FILE. Nothing is registered, and so nothing costs, where none of them is set.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from xla_dynamo.backend import metrics as backend_metrics
from xla_dynamo.bookkeeping import optional
from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.execution import (
    automatic_barriers,
    compiled_graphs,
    program_cache,
    settings,
    sync,
)
from xla_dynamo.compat.values import environment
from xla_dynamo.compat.values.source_location import Location

from . import ir, ir_text, metrics_report

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
        program_cache.on_compile.append(functools.partial(_show_compile, asked))
        compiled_graphs.on_compile.append(functools.partial(_show_graph_compile, asked))
        atexit.register(_show_summary, asked)
    if asked.level >= _LAUNCHES:
        sync.on_launch.append(functools.partial(_show_launch, asked))
        compiled_graphs.on_launch.append(functools.partial(_show_graph_launch, asked))
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


def _block(title: str, lines: Sequence[str]) -> str:
    ruled = ["=" * 80, *lines, "-" * 80, "=" * 80]
    return "\n" + "".join(f"{title}: {line}\n" for line in ruled)


def _trace_lines(trace: Any, program: Any) -> list[str]:
    inputs = len(program.inputs) + len(program.scalars) + bool(program.seeds)
    whole = graph_hash(trace.state, program.results, trace)
    return _graph_lines(whole, inputs, len(program.results))


def _graph_lines(graph: str, inputs: int, outputs: int) -> list[str]:
    name = settings.flag("graph_name")
    return [
        "Graph Info: ",
        *([f"  Graph Name: {name}"] if name else []),
        f"  Graph Hash: {graph}",
        f"  Number of Graph Inputs: {inputs}",
        f"  Number of Graph Outputs: {outputs}",
        "Python Frame Triggered Execution: ",
        *(f"  {frame}" for frame in frames()),
    ]


@functools.lru_cache(maxsize=1024)
def graph_hash(state: Any, results: tuple[int, ...], trace: Any) -> str:
    """The hash of a trace that ends at `state`, in hexadecimal digits."""
    return ir_text.trace_hash(trace, results).hex()


@optional(None)
def _show_compile(asked: Debugging, trace: Any, program: Any, run: Any) -> None:
    if not automatic_barriers.runs_each_op():  # as torch_xla
        _show_compiled(asked, cause(), _trace_lines(trace, program), run)


@optional(None)
def _show_graph_compile(asked: Debugging, executable: Any) -> None:
    _show_compiled(asked, "dynamo is compiling a FX graph to HLO", _of(executable), executable)


def _show_compiled(asked: Debugging, why: str, graph: Sequence[str], run: Any) -> None:
    records = backend_metrics.compiles()
    reason = ["Compilation Reason", f"  {records[-1].reason}"] if records else []
    lines = ["Compilation Cause", f"  {why}", *reason, *graph]
    text = _block("Compilation Analysis", lines)
    if hasattr(run, "memory"):
        text += _block("Post Compilation Analysis", _memory_lines(run.memory()))
    write(asked.report, text)


def _memory_lines(memory: Any) -> list[str]:
    sizes = {
        "Graph input size": memory.argument_size_in_bytes,
        "Graph output size": memory.output_size_in_bytes,
        "Aliased Input size": memory.alias_size_in_bytes,
        "Intermediate tensor size": memory.temp_size_in_bytes,
        "Compiled program size": memory.generated_code_size_in_bytes,
    }
    return [f"{name}: {size / 2**30:.6f} GB" for name, size in sizes.items()]


@optional(None)
def _show_launch(asked: Debugging, trace: Any, program: Any) -> None:
    if not automatic_barriers.runs_each_op():
        lines = ["Execution Cause", f"  {cause()}", *_trace_lines(trace, program)]
        write(asked.report, _block("Execution Analysis", lines))


@optional(None)
def _show_graph_launch(asked: Debugging, executable: Any) -> None:
    lines = ["Execution Cause", "  dynamo is executing a compiled program", *_of(executable)]
    write(asked.report, _block("Execution Analysis", lines))


def _of(executable: Any) -> list[str]:
    """What is said of a graph of torch.compile."""
    return _graph_lines(_program_hash(executable), executable.arguments, executable.results)


@functools.lru_cache(maxsize=64)
def _program_hash(executable: Any) -> str:
    return hashlib.blake2b(executable.optimized_hlo().encode(), digest_size=16).hexdigest()


_SAVED_AS = {"text": ir.print_nodes, "dot": ir.print_dot}


@optional(None)
def _save_graph(asked: Debugging, trace: Any, program: Any) -> None:
    if asked.graph_format == "hlo":
        graph = ir_text.trace_hlo(trace, program.results)
    else:
        show = _SAVED_AS.get(asked.graph_format, ir.print_nodes)
        graph = show(ir.nodes(trace, program.results))
    whole = graph_hash(trace.state, program.results, trace)
    roots = ", ".join(f"{whole[:24]}{i:08x}" for i in program.results)
    lines = ["[ScheduleSyncTensorsGraph]", "TensorsGraphInfo:", *(f"  {f}" for f in frames())]
    lines += ["", f"Root Hashes: ({roots})", "", "## BEGIN_GRAPH"]
    lines += [graph, f"Graph Hash: {whole}", "", "## END_GRAPH", "", ""]
    write(f"{asked.graphs}.{trace.device.index}", "\n".join(lines))


# The function that asked for the program: (end of its file's name, its name) -> what to call it.
_ENTER = "torch_xla.compile clear the pending graph prior calling the target function"
_CAUSES = (
    ("debug/profiler.py", "__exit__", "torch_xla.sync when exiting a profiler StepTrace region"),
    ("distributed/parallel_loader.py", "", "torch_xla.sync in parallel loader at step end"),
    ("torch_xla/_step.py", "scope", "torch_xla.compile"),
    ("execution/compiled_graphs.py", "", "torch_xla.sync when dynamo processing input graphs"),
    ("device/step_barrier.py", "mark_step", "user torch_xla.sync"),
    ("device/step_barrier.py", "sync", "user torch_xla.sync"),
)


def cause() -> str:
    """Why the caller's trace is launched now, in torch_xla's words."""
    stack = _stack()
    for file, function, words in _CAUSES:
        for position, found in enumerate(stack):
            if found.file.endswith(file) and found.function.startswith(function):
                entering = any(at.function == "__enter__" for at in stack[position:][:2])
                return _ENTER if entering and words == "torch_xla.compile" else words
    return "most likely user code trying to access tensor value before torch_xla.sync"


_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_PUBLIC = str(Path(__file__).parents[1] / "torch_xla") + os.sep
_TORCH = str(Path(torch.__file__).parent) + os.sep
_IMPORT = "<frozen "


def frames() -> list[str]:
    """The user's frames and the API that they called, innermost first: "function (file:line)"."""
    return [f"{at.function} ({at.file}:{at.line})" for at in _stack() if _is_users(at.file)]


def _is_users(file: str) -> bool:
    if file.startswith(_PACKAGE):
        return file.startswith(_PUBLIC)
    return not file.startswith((_TORCH, _IMPORT))


def _stack() -> list[Location]:
    """The lines that are being run, innermost first: frames would keep tensors alive."""
    found: list[Location] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        found.append(Location(code.co_filename, code.co_name, frame.f_lineno))
        frame = frame.f_back
    return found


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
