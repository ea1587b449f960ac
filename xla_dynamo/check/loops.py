"""Loops over batches: values that each pass waits for, and training without the end of a step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .findings import Finding, State, Verdict
from .scan import Scan

_XM = "torch_xla.core.xla_model"
# What ends a step, or hands training to somebody who does.
_BARRIERS = {
    f"{_XM}.mark_step",
    f"{_XM}.unlazy",
    "torch_xla.sync",
    "torch_xla.step",
    "torch_xla.compile",
    "torch_xla.experimental.eager_mode",
    "torch_xla.debug.profiler.StepTrace",
    "torch_xla._XLAC._xla_step_marker",
    "torch_xla._XLAC._xla_sync_multi",
}
_LOADERS = ("ParallelLoader", "MpDeviceLoader", "PerDeviceLoader", "DataParallel")
_LIBRARIES = ("accelerate", "lightning", "pytorch_lightning", "ignite", "transformers", "fastai")
_WRAPPERS = {"enumerate", "zip", "tqdm.tqdm", "tqdm.auto.tqdm", "rich.progress.track"}
_DEVICES = {f"{_XM}.xla_device", "torch_xla.device", "torch_xla_py.xla_model.xla_device"}
# What reads a value, or may, and so computes all before it.
_READS = {"item", "tolist", "numpy", "cpu", "info", "debug", "log", "write", "set_postfix"}
_MAY_READ = {"print", "float", "int", "bool", "str", "format"}

WAITS = Verdict(
    State.NOTE,
    "It waits for the device in each pass of the loop.",
    "read it every 100th pass, or in xm.add_step_closure",
)
NO_BARRIER = Verdict(
    State.NOTE,
    "Nothing ends the steps of this loop: it is recorded on and cut where it repeats itself.",
    "torch_xla.sync() (or xm.mark_step()) at the end of each pass",
)

_Loop = ast.For | ast.AsyncFor


def waits(found: Scan) -> Iterator[Finding]:
    """`.item()` in each pass of a loop over a loader."""
    for loop in _loops(found):
        if _is_over_loader(found, loop.iter):
            for node in _in_each_pass(loop.body):
                if isinstance(node, ast.Call) and _method(node) == "item" and not node.args:
                    yield Finding(node.lineno, node.col_offset + 1, ".item()", WAITS)


def without_barrier(found: Scan) -> Iterator[Finding]:
    """Training loops of scripts in which nothing ends a step."""
    used = {use.name for use in found.uses}
    ends = any(_ends_steps(use.name) or _is_with_barrier(use.call) for use in found.uses)
    if ends or not used & _DEVICES:
        return
    for loop in _loops(found):
        inside = [_method(node) for node in ast.walk(loop) if isinstance(node, ast.Call)]
        prints = any(found.name(node) in _MAY_READ for node in ast.walk(loop))
        inner = any(isinstance(node, _Loop) and node is not loop for node in ast.walk(loop))
        if "backward" in inside and not inner and not prints and not _READS & {*inside}:
            yield Finding(loop.lineno, loop.col_offset + 1, "training loop", NO_BARRIER)


def _ends_steps(name: str) -> bool:
    known = name in _BARRIERS or name.rpartition(".")[2] in _LOADERS
    return known or name.partition(".")[0] in _LIBRARIES


def _is_with_barrier(call: ast.Call | None) -> bool:
    """Such as xm.optimizer_step(optimizer, barrier=True)."""
    if call is None:
        return False
    named = any(keyword.arg == "barrier" for keyword in call.keywords)
    return named or (_method(call) == "optimizer_step" and len(call.args) > 1)


def _loops(found: Scan) -> Iterator[_Loop]:
    return (node for node in ast.walk(found.tree) if isinstance(node, _Loop))


def _is_over_loader(found: Scan, iterated: ast.expr) -> bool:
    """Whether an expression is a loader, by its name: `train_loader`, tqdm(loader), ..."""
    if isinstance(iterated, ast.Call):
        if found.name(iterated.func) in _WRAPPERS and iterated.args:
            return _is_over_loader(found, iterated.args[0])
        return "loader" in ast.unparse(iterated.func).lower()
    last = iterated.attr if isinstance(iterated, ast.Attribute) else None
    last = iterated.id if isinstance(iterated, ast.Name) else last
    return last is not None and "loader" in last.lower()


def _in_each_pass(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """What runs in every pass: not what is behind an `if`, in a function or in a loop within."""
    waiting: list[ast.AST] = [*body]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.If | ast.IfExp | ast.FunctionDef | ast.Lambda | _Loop):
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""
