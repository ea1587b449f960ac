"""Why a program is compiled or launched, and what it is: the blocks of text of PT_XLA_DEBUG.

They are torch_xla's, line for line, with the reason of a compile added.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from xla_dynamo.backend import metrics
from xla_dynamo.compat.execution import automatic_barriers, settings
from xla_dynamo.compat.values.source_location import Location

from . import ir_text


def of_compile(trace: Any, program: Any, run: Any) -> str:
    """What is said of a trace that was compiled to `run`; nothing in eager mode."""
    if automatic_barriers.runs_each_op():
        return ""
    return _compiled(cause(), _trace_lines(trace, program), run)


def of_launch(trace: Any, program: Any) -> str:
    """What is said of a trace that was launched; nothing in eager mode, as in torch_xla."""
    if automatic_barriers.runs_each_op():
        return ""
    return _launched(cause(), _trace_lines(trace, program))


def of_graph_compile(executable: Any) -> str:
    """What is said of a graph of torch.compile that was compiled."""
    why = "dynamo is compiling a FX graph to HLO"
    return _compiled(why, _executable_lines(executable), executable)


def of_graph_launch(executable: Any) -> str:
    """What is said of a graph of torch.compile that was launched."""
    return _launched("dynamo is executing a compiled program", _executable_lines(executable))


def _compiled(why: str, graph: Sequence[str], run: Any) -> str:
    records = metrics.compiles()
    reason = ["Compilation Reason", f"  {records[-1].reason}"] if records else []
    text = _block("Compilation Analysis", ["Compilation Cause", f"  {why}", *reason, *graph])
    if hasattr(run, "memory"):
        text += _block("Post Compilation Analysis", _memory_lines(run.memory()))
    return text


def _launched(why: str, graph: Sequence[str]) -> str:
    return _block("Execution Analysis", ["Execution Cause", f"  {why}", *graph])


def _block(title: str, lines: Sequence[str]) -> str:
    ruled = ["=" * 80, *lines, "-" * 80, "=" * 80]
    return "\n" + "".join(f"{title}: {line}\n" for line in ruled)


def _trace_lines(trace: Any, program: Any) -> list[str]:
    inputs = len(program.inputs) + len(program.scalars) + bool(program.seeds) + len(program.fresh)
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


def _executable_lines(executable: Any) -> list[str]:
    return _graph_lines(_program_hash(executable), executable.arguments, executable.results)


@functools.lru_cache(maxsize=64)
def _program_hash(executable: Any) -> str:
    return hashlib.blake2b(executable.optimized_hlo().encode(), digest_size=16).hexdigest()


def _memory_lines(memory: Any) -> list[str]:
    sizes = {
        "Graph input size": memory.argument_size_in_bytes,
        "Graph output size": memory.output_size_in_bytes,
        "Aliased Input size": memory.alias_size_in_bytes,
        "Intermediate tensor size": memory.temp_size_in_bytes,
        "Compiled program size": memory.generated_code_size_in_bytes,
    }
    return [f"{name}: {size / 2**30:.6f} GB" for name, size in sizes.items()]


# The function that asked for the program: (end of its file's name, its name) -> what to call it.
_ENTER = "torch_xla.compile clear the pending graph prior calling the target function"
_CAUSES = (
    ("debug/profiler.py", "__exit__", "torch_xla.sync when exiting a profiler StepTrace region"),
    ("distributed/parallel_loader.py", "", "torch_xla.sync in parallel loader at step end"),
    ("torch_xla/_step.py", "scope", "torch_xla.compile"),
    ("execution/compiled_graphs.py", "", "torch_xla.sync when dynamo processing input graphs"),
    ("execution/automatic_barriers.py", "", "a trace without barriers that has grown too long"),
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
