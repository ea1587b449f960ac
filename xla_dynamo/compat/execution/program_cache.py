"""The program of a pending trace: looked up by the structure of its graph, or compiled.

Traces that differ only in values that nobody needs (one that was printed, then dropped) have the
same graph, and share one executable. States of the trie know their programs, and these refer to
executables weakly: the latest are kept.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from xla_dynamo import interrupts
from xla_dynamo.backend.graph import error_origin
from xla_dynamo.bounded import Bounded
from xla_dynamo.compat.recording import metrics, shape_inference
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values import environment, functionalization
from xla_dynamo.compat.values.trie import State
from xla_dynamo.lazily import lazily

from . import known_programs, spmd
from .program import Launch, Program, Run, Zeros

if TYPE_CHECKING:
    from xla_dynamo.backend.executable import device_launch, joint, known
    from xla_dynamo.backend.runtime import pjrt
    from xla_dynamo.compat.execution import (
        fresh_state,
        recompile_reason,
        size_templates,
        trace_to_fx,
    )
else:
    device_launch = lazily("xla_dynamo.backend.executable.device_launch", globals())
    joint = lazily("xla_dynamo.backend.executable.joint", globals())
    known = lazily("xla_dynamo.backend.executable.known", globals())
    pjrt = lazily("xla_dynamo.backend.runtime.pjrt", globals())
    fresh_state = lazily(f"{__package__}.fresh_state", globals())
    recompile_reason = lazily(f"{__package__}.recompile_reason", globals())
    size_templates = lazily(f"{__package__}.size_templates", globals())
    trace_to_fx = lazily(f"{__package__}.trace_to_fx", globals())

# Executables that are kept, over all devices: those that were compiled, or found again, last. One
# of XLA:CPU takes some 27 of the 65,530 memory maps that Linux allows a process.
_runs: Bounded[Hashable, Run] = Bounded(1024)
# Are told of every trace that is compiled: the executable is one of XLA, or runs several.
on_compile: list[Callable[[Trace, Program, Any], None]] = []


def compile_trace(
    trace: Trace,
    live: Sequence[int],
    dead: Sequence[int],
    device: pjrt.Where,
    without: Collection[State] = (),
) -> tuple[Program, Run]:
    """The program of the pending trace for the results `live`; it takes over the inputs `dead`.

    device: the device, or those of all replicas.
    without: ops that are not run: no result depends on them.
    """
    with shape_inference.lock, interrupts.deferred(once=True):  # threads share fakes
        key = why = None
        if not (without or isinstance(device, tuple) or device is spmd.where()):
            options = recompile_reason.compile_options()
            if options.bucket is not None:
                padded = size_templates.program_of(trace, live, dead, device, options)
                if isinstance(padded, size_templates.Padded):
                    return _of_template(trace, live, padded)
                why = padded
            key = known_programs.key_of(trace, live, dead, options, device)
        found = None if key is None else _known(trace, key, (live, dead), device)
        if found is not None:
            return found
        return _compiled(trace, live, dead, device, without, why, key)


def _compiled(
    trace: Trace,
    live: Sequence[int],
    dead: Sequence[int],
    device: pjrt.Where,
    without: Collection[State],
    why: str | None = None,
    known_as: str | None = None,
) -> tuple[Program, Run]:
    """The program, by the structure of its graph.

    why: it is compiled, if not for what is new in the trace.
    known_as: its key on disk.
    """
    builder = trace_to_fx.build(trace.state.path(), trace.inputs, without)
    inputs, vectors, seeds = builder.close(live)
    given = set(dead)
    donated = frozenset(position for position, i in enumerate(inputs) if i in given)
    options = repr(recompile_reason.compile_options())
    # Ops on integers give floats of the default dtype, which no argument tells.
    dtype = torch.get_default_dtype()
    where: Any = device if isinstance(device, tuple) else trace.device
    if device is spmd.where():
        where = device = spmd.of_program(trace, inputs, len(vectors), len(seeds), live)
    error_origin.number(builder.graph.nodes)
    places = known_programs.places(trace.state.path(), builder.graph)
    fresh: tuple[Zeros, ...] = ()
    if spmd.where() is None:  # there the state is split as its parameters are
        fresh = fresh_state.lift(builder.graph, donated)
        donated = _with_fresh(donated, fresh)
    key = (where, dtype, donated, options, structure(builder.graph))
    run, compiled = _runs.get(key), None
    if run is not None:
        _runs.move_to_end(key)
        metrics.count("CachedCompile")
    else:
        request = recompile_reason.request(trace, (live, dead), why)
        with metrics.timed(metrics.of_trace("CompileTime")), functionalization.outermost():
            compile = functools.partial(
                device_launch.compile_arrays,
                builder.graph,
                request,
                device,
                donated,
                metrics.count_fallback,
            )
            compiled = spmd.together(key, device, compile)
        run = _runs[key] = _boxed(compiled)
    last = getattr(run, "late", None) or range(len(live))
    watch = min(last, default=0, key=lambda i: builder.elements(live[i]))
    taken = weakref.ref(run), inputs, vectors, seeds
    program = Program(*taken, tuple(live), watch, fresh=fresh)
    if known_as is not None:
        known_programs.remember(known_as, run, program, places)
    if compiled is not None:
        _tell(trace, program, compiled)
    return program, run


def _with_fresh(donated: frozenset[int], fresh: Sequence[Zeros]) -> frozenset[int]:
    """The donated arguments, when those of zeros are between the others, and are donated, too."""
    moved = sorted(donated)
    for place, _, _ in fresh:
        moved = [position + (position >= place) for position in moved]
    return frozenset(moved).union(place for place, _, _ in fresh)


def _of_template(
    trace: Trace, live: Sequence[int], padded: size_templates.Padded
) -> tuple[Program, Run]:
    """The program of a trace that is run by one for larger sizes."""
    form, run = padded.form, padded.run
    numbers = padded.window.scalars
    scalars = tuple([(of, tuple([numbers[i] for i in listed])) for of, listed in form.scalars])
    taken = weakref.ref(run), form.inputs, scalars, form.seeds
    program = Program(*taken, tuple(live), form.watch, run.cuts or None, padded.window.constants)
    if padded.executable is None:
        metrics.count("CachedCompile")
    else:
        _tell(trace, program, padded.executable)
    return program, run


def _known(
    trace: Trace, key: str, survivors: recompile_reason.Survivors, device: pjrt.Device
) -> tuple[Program, Run] | None:
    """The program that an earlier process left on disk, if it did."""
    found = known.find(key)
    if found is None:
        return None
    place = trace.device, known_programs.identity(found)
    run, executable = _runs.get(place), None
    if run is not None:
        _runs.move_to_end(place)
        metrics.count("CachedCompile")
    else:
        request = recompile_reason.request(trace, survivors)
        with metrics.timed(metrics.of_trace("CompileTime")):
            executable = known_programs.load(found, request, device, trace.state.path())
        if executable is None:
            return None
        run = _runs[place] = _boxed(executable)
    program = Program.from_json(run, found.details["program"])
    if executable is not None:
        _tell(trace, program, executable)
    return program, run


def _tell(trace: Trace, program: Program, compiled: Any) -> None:
    metrics.compiled(getattr(compiled, "aliases", 0))
    environment.warn_of_late()
    for listener in on_compile:
        listener(trace, program, compiled)


def state_of(trace: Trace, live: Sequence[int], without: Collection[State], number: int) -> State:
    """The op that node `number` of a program of the trace is part of.

    Traces share programs, hence no node of a program knows the op of each trace.
    """
    with shape_inference.lock, interrupts.deferred(once=True):
        builder = trace_to_fx.build(trace.state.path(), trace.inputs, without)
        builder.close(live)
    return list(builder.graph.nodes)[number].meta["state"]


def structure(of: Graph) -> Hashable:
    """Equal for graphs that compute the same: ops, arguments, shapes, results."""
    number: dict[Node, int] = {}
    parts: list[Hashable] = []
    for node in of.nodes:
        number[node] = len(number)
        leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
        named = tuple(
            ("node", number[leaf]) if isinstance(leaf, Node) else (type(leaf), repr(leaf))
            for leaf in leaves
        )
        target = node.target if node.op == "call_function" else None
        value = node.meta.get("val") if node.op == "placeholder" else None
        given = (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else None
        parts.append((node.op, target, named, spec, given))
    return tuple(parts)


def _boxed(run: Callable[..., Sequence[Any]]) -> Run:
    takes_each = isinstance(run, pjrt.Executable | joint.Agreed)
    return Launch(run) if takes_each else run
