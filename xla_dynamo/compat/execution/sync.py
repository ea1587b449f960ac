"""The barrier: a pending trace is compiled and launched; values move to the device and back.

`cut` makes one program of everything that is pending on a device. It returns when the program is
launched, not when it is done. Where an op raises, everything that does not depend on it is computed
all the same (see failed_values).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from xla_dynamo import interrupts
from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.compat.recording import metrics, pending, replicas, shape_inference
from xla_dynamo.compat.recording.trace import Trace, trace_of
from xla_dynamo.compat.values import forks, storage
from xla_dynamo.compat.values.storage import stored
from xla_dynamo.compat.values.trie import State
from xla_dynamo.compat.values.values import Array, Held, Leaf, Meta, PutOff, Value, meta_of
from xla_dynamo.errors import ReplicaError
from xla_dynamo.lazily import lazily

from . import auto_sharding, failed_values, out_of_memory, program_cache, settings, spmd
from .program import Program, Run

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import pjrt, transfers
    from xla_dynamo.backend.runtime.shardings import Sharding
else:
    pjrt = lazily("xla_dynamo.backend.runtime.pjrt", globals())
    transfers = lazily("xla_dynamo.backend.runtime.transfers", globals())


def references(values: list[Any]) -> list[int]:
    """How many hold each of these objects: `HELD`, if only this list does."""
    count = sys.getrefcount
    return [count(value) for value in values]


_Numbers = tuple[int, ...]

# The count that `references` gives for a value that only its list holds.
HELD = references([Value.__new__(Value)])[0]


# Are told of every launch of a trace.
on_launch: list[Callable[[Trace, Program], None]] = []
# The results of the last launches on each device.
launched: dict[int, collections.deque[list[weakref.ref[Array]]]] = {}
_LAUNCHES = 64


def cut(trace: Trace) -> bool:
    """Compile (if new) and launch everything that is pending; whether anything was.

    Raises:
        What an op raises, once: its results are failed then. What has another reason (no memory,
        Ctrl-C) leaves everything pending.
    """
    with trace.lock:
        if not trace.values:
            trace.clear()
            return False
        if settings.launch_refusal is not None:
            raise RuntimeError(settings.launch_refusal)
        on, live = spmd.where(), alive(trace)
        dead = tuple([i for i, n in enumerate(references(trace.inputs)) if n == HELD])
        try:
            if trace.state.collective and on is None:
                _run_together(trace, live, dead)
            else:
                _run(trace, live, dead)
        except Exception as error:
            _run_others(trace, live, dead, error)
        return True


def _run_together(trace: Trace, live: _Numbers, dead: _Numbers) -> None:
    """Launch with all other replicas what has collectives; their world settles it."""
    member = replicas.of_device(trace.device.index)
    if member is None:
        if all(state.op.func.namespace != "xla_dynamo" for state in _collectives(trace)):
            _run(trace, live, dead)  # PyTorch's own, in a group of one
            return
        raise ReplicaError(
            f"What is pending on {trace.device} exchanges values with other replicas, and their "
            "run has ended: read results, or call xm.mark_step(), before the loop function returns."
        )
    member.world.launch(member.rank, trace, live, dead)


def _run(
    trace: Trace, live: _Numbers, dead: _Numbers, lost: failed_values.Lost = failed_values.NOTHING
) -> None:
    """Launch the program for the values `live`, and begin a new trace."""
    key = spmd.key(trace, live, dead)
    program = trace.state.programs.get(key)
    run = None if program is None else program.run()
    if program is None or run is None:
        device = device_of(trace)
        program, run = program_cache.compile_trace(trace, live, dead, device, lost.states)
        trace.state.programs[key] = program
    else:
        metrics.count("CachedCompile")
    with interrupts.deferred():
        _launch(trace, program, run)
        if lost.values:
            failed_values.mark(trace, lost)
        trace.clear()


def _collectives(trace: Trace) -> list[State]:
    return [state for state in trace.state.path() if state.op.collective]


def _run_others(trace: Trace, live: _Numbers, dead: _Numbers, error: Exception) -> NoReturn:
    """Launch what does not depend on the op that raised `error`, and raise that."""
    lost, latest = failed_values.NOTHING, error
    try:
        while True:
            if latest is error and trace.state.collective:
                more = failed_values.lost_with_collectives(error, trace)
            else:
                more = failed_values.lost_by(latest, trace, live, lost)
            if more is None:
                out_of_memory.reraise(latest, trace)
            lost = more
            live = tuple([i for i in live if i not in lost.values])
            failed_values.release(latest)
            try:
                if live:
                    _run(trace, live, dead, lost)
                else:
                    with interrupts.deferred():
                        failed_values.mark(trace, lost)
                        trace.clear()
                break
            except Exception as another:
                latest = another
        raise error
    finally:
        del error, latest  # their tracebacks hold this frame


def give_up(trace: Trace, error: Exception) -> None:
    """Run what is pending without other replicas, whose run has ended with `error`: who reads
    what was to be exchanged gets that.
    """
    with trace.lock, contextlib.suppress(Exception):
        if trace.state.collective:
            _run_others(trace, alive(trace), (), error)


def alive(trace: Trace) -> tuple[int, ...]:
    """The pending values that are referenced from outside, by index."""
    return tuple([i for i, n in enumerate(references(trace.values)) if n > HELD])


def _launch(trace: Trace, program: Program, run: Run) -> None:
    arrays = arguments(trace, program)
    start = time.perf_counter_ns()
    _store(trace, program, run(arrays), start)


def arguments(trace: Trace, program: Program) -> list[Array]:
    """The arrays that a trace's program takes: its inputs, numbers and seeds."""
    inputs, scalars = trace.inputs, trace.scalars
    if program.constants:
        scalars = [*scalars, *program.constants]
    arrays = [inputs[i].array for i in program.inputs]
    device = device_of(trace)
    for dtype, indices in program.scalars:
        arrays.append(_numbers(trace, np.array([scalars[i] for i in indices], dtype), device))
    if program.seeds:
        seeds = np.array([trace.seeds[i] for i in program.seeds], np.uint64)
        arrays.append(transfers.put(seeds.view(np.uint32).reshape(-1, 2), device))
    for position, shape, dtype in program.fresh:
        arrays.insert(position, transfers.put(np.zeros(shape, dtype), device))
    return arrays


def _numbers(trace: Trace, host: np.ndarray, device: Any) -> Array:
    """Numbers that a program takes, on the device: the array of an earlier step, if they are equal.

    Of learning rates, most steps are like the one before. No program writes to this argument.
    """
    key = device, host.dtype, host.tobytes()
    array = trace.sent.get(key)
    if array is None:
        array = trace.sent[key] = transfers.put(host, device)
    return array


def settle(trace: Trace, program: Program, results: Sequence[Array], start: int) -> None:
    """Give the values of a trace, launched at `start`, their arrays; begin a new trace."""
    with interrupts.deferred():
        _store(trace, program, results, start)
        trace.clear()


def _store(trace: Trace, program: Program, results: Sequence[Array], start: int) -> None:
    values = trace.values
    for i, array in zip(program.results, results, strict=True):
        value = values[i]
        value.array = array
        value.stamp = None
    if program.cuts is not None:
        for position, cut in program.cuts.items():
            value = values[program.results[position]]
            host = functools.partial(cut.host, results[position])
            there = functools.partial(_place_cut, functools.partial(cut.array, results[position]))
            value.array, value.ref = None, Held(host, there, is_upload=True)
    given = len(trace.inputs) + len(trace.scalars)
    metrics.launched(trace.state, len(values), given, len(results))
    if results:
        index, name = trace.device.index, metrics.of_trace("ExecuteTime")
        metrics.watch(index, start, results[program.watch], id(program), name)
        note_launch(index, results)
    for listener in on_launch:
        listener(trace, program)


def note_launch(device: int, results: Sequence[Array]) -> None:
    """Remember what was launched on a device, for those who wait for it."""
    latest = launched.get(device)
    if latest is None:
        latest = launched.setdefault(device, collections.deque(maxlen=_LAUNCHES))
    latest.append([weakref.ref(array) for array in results])


def set_option(name: str, value: Any) -> None:
    """Set an option of `xla_dynamo.backend.options.Options` for the process; None: its default.

    What is pending is launched with the options as they were; what was compiled is compiled again.

    Raises:
        OptionError: an unknown name, or an illegal value.
    """
    if not settings.set_option(name, value):
        return
    used = pending.traces()
    try:
        for trace in used:
            cut(trace)
    finally:  # also where an op raises
        for trace in used:
            with trace.lock:
                trace.forget_programs()


def device_of(trace: Trace) -> Any:
    """The PJRT device of a trace, or in SPMD mode the devices."""
    forks.use()
    return spmd.where() or pjrt.device(default_platform(), trace.device.index, asynchronous=True)


def upload(trace: Trace, host: torch.Tensor, like: Meta | None = None) -> Value:
    """A CPU tensor's value on the device; the tensor may change afterwards.

    Its strides are those of `like`, by default those that the tensor's `.to()` gives.

    Raises:
        UnsupportedOp: it is sparse, or of a dtype that XLA has not.
    """
    if not storage.is_dense(host):
        raise storage.refuse(host.layout, host.dtype)
    meta = like or shape_inference.like(meta_of(host))
    on = spmd.where()
    if on is not None:
        split = auto_sharding.chosen(host, len(on.devices)) if auto_sharding.is_on() else None
        kept = host.detach().to("cpu", stored(host.dtype), copy=True).contiguous()
        return Value(meta, trace, Held(kept, place, is_upload=True, split=split))
    return Value(meta, trace, array=_upload(trace, host.detach().to(stored(host.dtype))))


def _upload(trace: Trace, host: torch.Tensor, sharding: Sharding | None = None) -> Array:
    start = time.perf_counter_ns()
    try:
        array = transfers.upload(host, device_of(trace), sharding)
    except Exception as error:
        out_of_memory.reraise(error, trace)
    metrics.uploaded(time.perf_counter_ns() - start, host.nbytes)
    return array


def materialize(value: Value) -> Array:
    """The array of a value, after a barrier if it is pending."""
    if value.array is None:
        trace = trace_of(value)
        with trace.lock:
            if value.array is None:
                if value.stamp is not trace.stamp:
                    trace.adopt(value)
                cut(trace)
    return value.array


def place(value: Value, sharding: Sharding | None = None) -> None:
    """Give a value that the host has its array: all of it, or parts, on each device."""
    known = value.ref
    if type(known) is Held:
        if known.is_upload and sharding is None:
            sharding = spmd.mark_of(value) or known.split
        host = known.host.detach().to(stored(known.host.dtype))
        value.array = _upload(trace_of(value), host, sharding)
        value.ref = None


def _place_cut(make: Callable[[], Array | None], value: Value) -> None:
    """Give a result that has padding its array: cut on the device, or on the host."""
    known = value.ref
    array = make() if type(known) is Held and callable(known.known) else None
    if array is None:
        place(value)
    else:
        value.array, value.ref = array, None


def download(value: Value) -> torch.Tensor:
    """A value as a new CPU tensor; waits for it."""
    forks.use()
    if type(value.ref) is Held:
        return _laid_out(value.ref.host.clone(), value)
    _compute(value)
    start = time.perf_counter_ns()
    try:
        host = _host(value)
    except Exception as error:
        member = replicas.of_device(trace_of(value).device.index)
        if member is not None and not out_of_memory.lacks_memory(error):
            member.world.explain(error)
        out_of_memory.reraise(error, trace_of(value))
    metrics.downloaded(time.perf_counter_ns() - start, host.nbytes)
    return _laid_out(host, value)


def to_cpu(argument: Any) -> Any:
    """An op's argument as the same op takes it on the CPU."""
    if type(argument) is Leaf:
        return download(argument.value)
    return torch.device("cpu") if type(argument) is torch.device else argument


def _compute(value: Value) -> None:
    """Have the device compute a value, or the parts of one that the host makes of them."""
    if isinstance(value.ref, PutOff):
        for part in value.ref.parts:
            _compute(part)
    elif type(value.ref) is not Held:
        materialize(value)


def _host(value: Value) -> torch.Tensor:
    """The numbers of a value that is computed, or whose parts are."""
    known = value.ref
    if isinstance(known, PutOff):
        return known.op.func(*known.arguments([_host(part) for part in known.parts]))
    shape = value.meta.shape
    host = known.host if type(known) is Held else transfers.download(value.array, shape)
    return host if host.dtype is value.meta.dtype else host.to(value.meta.dtype)


def _laid_out(host: torch.Tensor, value: Value) -> torch.Tensor:
    """`host`, with the strides of a value."""
    if value.meta.strides is None:
        return host
    own = shape_inference.like(value.meta)  # an expanded value has memory of its own now
    if own.strides is None:
        return host
    return torch.empty_strided(host.shape, own.strides, dtype=host.dtype, device="cpu").copy_(host)
