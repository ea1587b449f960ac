"""Traces that differ in sizes alone, run by programs for buckets of sizes: option "bucket".

The first trace of a structure is compiled for its sizes. From the second ones on, their common
form is sought (see symbolic_trace), and its sizes are padded as those of a graph of torch.compile.
A form that does not give a trace exactly, each of its integers, does not run it: another one is
sought, with that trace among those seen, and the trace compiled for its own sizes if there is none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph

from xla_dynamo.backend import metrics as backend_metrics
from xla_dynamo.backend.executable import device_launch
from xla_dynamo.backend.executable.bucketed import Bucketed, Recurring
from xla_dynamo.backend.executable.device_padding import DevicePadding
from xla_dynamo.backend.executable.padded_arrays import PaddedLaunch
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.passes.padding.plan import Agreement, PaddedGraph, Plan
from xla_dynamo.backend.passes.static.specialize import find_symbols
from xla_dynamo.backend.runtime import pjrt, transfers
from xla_dynamo.bounded import Bounded
from xla_dynamo.compat.recording import metrics
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values import functionalization, storage
from xla_dynamo.compat.values.describe import op_at
from xla_dynamo.compat.values.trie import refs_in
from xla_dynamo.config import config

from . import recompile_reason
from .symbolic_form import SymbolicTrace, Unfit
from .symbolic_trace import symbolic
from .window_sizes import Window, window_of

# Windows of one structure by which a form is found, and how often one is sought.
_SEEN, _ATTEMPTS = 8, 6


@dataclass(frozen=True)
class Padded:
    """What runs a trace; executable: what was compiled for it, if anything was."""

    form: SymbolicTrace
    window: Window
    run: PaddedLaunch | Recurring
    executable: pjrt.Executable | None


class _Template:
    """The form of windows that differ in sizes, and its programs.

    donated: positions among its arguments. names: of the inputs of the trace.
    """

    def __init__(
        self,
        form: SymbolicTrace,
        device: pjrt.Device,
        donated: Sequence[int],
        names: Sequence[str],
        options: Options,
        there: DevicePadding | None,
    ) -> None:
        assert options.bucket is not None
        self._there = there
        self.form, self._device, self._donated = form, device, donated
        self._symbols = find_symbols(form.graph)
        self._integers_at = len(fx.placeholders(form.graph)) - len(form.more)
        labels = [
            "an integer" if d is None else f"{names[form.inputs[i]]} dimension {d}"
            for i, d in self._symbols.sources
        ]
        self._agreement = Agreement()
        of_graph = form.graph, self._symbols, labels, options.bucket, self._agreement
        self._programs = Bucketed(*of_graph, (), 0, options.max_executables, self._launch)
        self._compiled: pjrt.Executable | None = None

    def run(self, trace: Trace, window: Window) -> Padded | str | None:
        """What runs a window of this form, or why, or None, if none of its sizes is padded."""
        self._compiled = None
        key = tuple([self._value(trace, window, i, d) for i, d in self._symbols.sources])
        exact = len(self._agreement.exact)
        found = self._programs.known(key)
        found = found or self._programs.run(key, functools.partial(self._compile, trace))
        if len(self._agreement.exact) > exact:
            metrics.count("BucketExact", len(self._agreement.exact) - exact)
        if found is not None:
            return Padded(self.form, window, found, self._compiled)
        return self._programs.why_exact(key)

    def _value(self, trace: Trace, window: Window, position: int, dimension: int | None) -> int:
        if dimension is None:
            return window.sizes[self.form.more[position - self._integers_at]]
        return trace.inputs[self.form.inputs[position]].meta.shape[dimension]

    def _compile(self, trace: Trace, plan: Plan, reason: str) -> tuple[Any, PaddedGraph]:
        request = recompile_reason.request_for(trace, reason)
        graph = fx.copy(self.form.graph)
        with metrics.timed(metrics.of_trace("CompileTime")):
            made = device_launch.compile_padded(graph, request, self._device, self._donated, plan)
        if not self.form.holds:
            raise Unfit("sizes were asked for")
        self._compiled = made[0].executable
        metrics.count("BucketCompile")
        return made

    def _launch(self, run: Any, graph: PaddedGraph, real: Any, *_: Any) -> PaddedLaunch:
        return PaddedLaunch(run, graph, real, self._device, self._there)


@dataclass(eq=False)
class _Family:
    """The windows of one structure: the sizes of those seen, the first and the last, and their
    forms.
    """

    seen: list[tuple[int, ...]] = field(default_factory=list)
    templates: list[_Template] = field(default_factory=list)
    attempts: int = 0

    def note(self, sizes: tuple[int, ...]) -> None:
        """Remember a window, as the last one."""
        if sizes in self.seen:
            self.seen.remove(sizes)
        self.seen.append(sizes)
        del self.seen[1 : len(self.seen) - _SEEN + 1]


_families: Bounded[Any, _Family] = Bounded(128)


def program_of(
    trace: Trace, live: Sequence[int], dead: Sequence[int], device: pjrt.Device, options: Options
) -> Padded | str | None:
    """What runs the pending trace by a program for a bucket of sizes.

    None, or the reason, if nothing does.
    """
    if trace.state.collective:
        return None
    window = window_of(trace, live, dead)
    stored = repr(sorted(map(str, storage.overrides().items())))
    key = trace.device, torch.get_default_dtype(), repr(options), stored, window.structure
    family = _families.get(key)
    if family is None:
        family = _families[key] = _Family()
    try:
        with functionalization.outermost():
            template = next((t for t in family.templates if t.form.fits(window.sizes)), None)
            if template is None:
                family.note(window.sizes)
                differ = any(map(window.differs_from, family.seen))
                if not differ or family.attempts >= _ATTEMPTS:
                    return None
                family.attempts += 1
                template = _sought(family, trace, window, live, dead, device, options)
                family.templates.append(template)
            return template.run(trace, window)
    except Exception as error:
        if config().strict and not isinstance(error, Unfit):
            raise
        backend_metrics.count("bucket.unfit")
        metrics.count("BucketUnfit")
        backend_metrics.compile_log.info("a trace is compiled for its own sizes: %r", error)
        return None


def _sought(
    family: _Family,
    trace: Trace,
    window: Window,
    live: Sequence[int],
    dead: Sequence[int],
    device: pjrt.Device,
    options: Options,
) -> _Template:
    """The common form of the windows seen.

    Raises:
        Unfit, or what PyTorch raises where it cannot infer sizes.
    """
    request = recompile_reason.request_for(trace, "a form for many sizes")
    prepare = functools.partial(device_launch.prepare_padded, request=request, device=device)
    form = symbolic(trace, window, live, family.seen, prepare)
    donated = [position for position, i in enumerate(form.inputs) if i in {*dead}]
    there = _padding_on(trace, device) if transfers.is_apart(device) else None
    return _Template(form, device, donated, _names(trace), options, there)


def _padding_on(trace: Trace, device: pjrt.Device) -> DevicePadding:
    """What pads and cuts arrays of a device."""

    def compile(graph: Graph, reason: str) -> Callable[[list[Any]], Sequence[Any]]:
        request = recompile_reason.request_for(trace, reason)
        with functionalization.outermost():
            made = device_launch.compile_arrays(graph, request, device, (), metrics.count_fallback)
        return lambda arrays: made(*arrays)

    return DevicePadding(compile)


def _names(trace: Trace) -> list[str]:
    """The inputs of a trace as users know them: by the op that uses them first."""
    names = [f"input {i}" for i in range(len(trace.inputs))]
    for state in reversed(trace.state.path()):
        for ref in refs_in(state.key):
            if ref.meta is not None:
                names[ref.index] = f"input {ref.index} (first used by {op_at(state)})"
    return names
