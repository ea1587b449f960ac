"""Counters and samples of what the lazy device does, by torch_xla's names.

Every upload and launch calls these, so they only add up. Counts of ops and tensors are derived from
the launches when somebody asks for them (see reporting.metrics_report).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from xla_dynamo.backend import observers
from xla_dynamo.backend.decompositions.foreach import FOREACH
from xla_dynamo.bookkeeping import optional
from xla_dynamo.compat.values import environment
from xla_dynamo.compat.values.forks import fork_safe
from xla_dynamo.compat.values.trie import State

from .execution_time import Watch
from .trace_bounds import policy

_STATES = 4096  # states whose launches are counted one by one, before they are summed up


def _samples() -> collections.deque[tuple[float, float]]:
    capacity = environment.read(("XLA_METRICS_SAMPLES",)).get("XLA_METRICS_SAMPLES") or 1024
    return collections.deque(maxlen=int(capacity))


@dataclass(slots=True)
class Metric:
    """Samples of one thing: all of them summed, the last ones with their times.

    samples: (seconds since the epoch, value in nanoseconds, bytes or of no unit).
    """

    total: int = 0
    sum: float = 0.0
    samples: collections.deque[tuple[float, float]] = field(default_factory=_samples)


lock = fork_safe(threading.RLock())
counters: collections.Counter[str] = collections.Counter()
metrics: collections.defaultdict[str, Metric] = collections.defaultdict(Metric)
# Traces that were launched, by the state of the trie at which they ended.
launches: dict[State, int] = {}
_watches: dict[tuple[int, str], Watch] = {}  # by the number of the device, and the metric
os.register_at_fork(after_in_child=_watches.clear)  # their threads are not in the child
_thread = threading.local()  # start: when the thread's last graph was launched


def count(name: str, by: int = 1) -> None:
    """Add to a counter."""
    with lock:
        counters[name] += by


def sample(name: str, value: float) -> None:
    """Add a sample (nanoseconds, or bytes) to a metric."""
    with lock:
        _add(name, time.time(), value)


def _add(name: str, now: float, value: float) -> None:
    metric = metrics[name]
    metric.total += 1
    metric.sum += value
    metric.samples.append((now, float(value)))


@contextlib.contextmanager
def timed(name: str) -> Iterator[None]:
    """Sample the time that the block takes."""
    start = time.perf_counter_ns()
    try:
        yield
    finally:
        sample(name, time.perf_counter_ns() - start)


def uploaded(nanoseconds: int, size: int) -> None:
    """A tensor of `size` bytes was copied to a device."""
    now = time.time()
    with lock:
        _add("TransferToDeviceTime", now, nanoseconds)
        _add("OutboundData", now, size)
        counters["CreateXlaTensor"] += 1
        counters["CreateDataHandles"] += 1
        counters["xla::_copy_from"] += 1


def downloaded(nanoseconds: int, size: int) -> None:
    """A tensor of `size` bytes was copied from a device."""
    now = time.time()
    with lock:
        _add("TransferFromDeviceTime", now, nanoseconds)
        _add("InboundData", now, size)
        counters["xla::_to_cpu"] += 1


def compiled(aliases: int) -> None:
    """A trace was compiled, into a program with `aliases` results in the memory of inputs."""
    count("UncachedCompile")
    count("CreateCompileHandles")
    sample("InputOutputAliasCount", aliases)


def launched(state: State, values: int, arguments: int, results: int) -> None:
    """A trace that ends at `state` was launched: numbers of its values, arguments and results."""
    now, execution = time.time(), _execution()
    with lock:
        launches[state] = launches.get(state, 0) + 1
        counters[execution] += 1
        counters["CreateXlaTensor"] += values
        counters["CreateDataHandles"] += results
        _add("TensorsGraphSize", now, values + arguments)
    if len(launches) > _STATES:
        sum_up()


@optional(None)
def watch(device: int, start: int, result: Any, program: int, name: str = "ExecuteTime") -> None:
    """Time a launch on device `device` at `start` (perf_counter_ns), by one of its arrays."""
    key = device, name
    found = _watches.get(key)
    if found is None:
        found = _watches.setdefault(key, Watch(functools.partial(_ran, name)))
    found.launched(start, result, program)


def _ran(name: str, program: int, nanoseconds: int, end: int) -> None:
    sample(name, nanoseconds)
    observers.ran(program, nanoseconds, end)


def of_trace(name: str) -> str:
    """What torch_xla calls a time, CompileTime or ExecuteTime, that a trace of now takes."""
    return f"EagerOp{name}" if policy.each_op else of_graph(name)


def of_graph(name: str) -> str:
    """The same of a graph of torch.compile."""
    return "ExecuteReplicatedTime" if name == "ExecuteTime" and environment.in_spmd() else name


def _execution() -> str:
    return "ExecuteReplicated" if environment.in_spmd() else "ExecuteComputation"


def graph_enters(inputs: int, pending: bool) -> None:
    """A graph of torch.compile is about to run on tensors of the device."""
    sample("RunCachedGraphInputData", inputs)
    if pending:
        count("DynamoSyncInputExecuteTime")
    _thread.start = time.perf_counter_ns()


@optional(None)
def graph_launched(device: int, results: int, timed_by: Any, program: int) -> None:
    """Graph `program` of torch.compile was launched by this thread.

    results: how many it gave; timed_by: one of them.
    """
    sample("RunCachedGraphOutputData", results)
    with lock:
        counters[_execution()] += 1
        counters["CreateDataHandles"] += results
    if results:
        watch(device, _thread.start, timed_by, program, of_graph("ExecuteTime"))


@optional(None)
def settle() -> None:
    """Sample the launches that have ended by now."""
    for watch in list(_watches.values()):
        watch.settle()


@optional(None)
def sum_up() -> None:
    """Turn launches into the counters of their ops."""
    with lock:
        counters.update(count_ops(launches))
        launches.clear()


def count_ops(traces: Mapping[State, int]) -> collections.Counter[str]:
    """Calls of each op in traces, given by the states at which they end, times their launches."""
    counted: collections.Counter[str] = collections.Counter()
    for end, times in traces.items():
        for name, calls in _ops(end).items():
            counted[name] += calls * times
    return counted


@functools.lru_cache(maxsize=1024)
def _ops(end: State) -> dict[str, int]:
    counted: collections.Counter[str] = collections.Counter()
    for state in end.path():
        func = FOREACH.get(state.op.func)
        counted[_counter(func or state.op.func)] += len(state.outputs) if func else 1
    return dict(counted)


# Ops that torch_xla has by another name.
_COUNTED_AS = dict.fromkeys(
    ("_native_batch_norm_legit", "_native_batch_norm_legit_functional"), "native_batch_norm"
)


@functools.lru_cache(maxsize=4096)
def _counter(func: Any) -> str:
    name = func._schema.name.split("::")[1]
    return f"xla::{_COUNTED_AS.get(name, name)}"


@optional(None)
def count_fallback(func: Any) -> None:
    """Count an op, or another function of a graph, that ran on the CPU."""
    schema = getattr(func, "_schema", None)
    count(schema.name if schema else f"{func.__module__}.{func.__name__}")
