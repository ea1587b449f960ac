"""torch_xla's metrics report, line for line, from the counters and samples of the lazy device.

Order: metrics and counters of what PyTorch sees, then those of the device's runtime, each
alphabetical. Counters of ops (`xla::add`) come from the traces that were launched and from those
that are pending now.
"""

from __future__ import annotations

import collections
import functools
import gc
import os
import re
from collections.abc import Callable, Iterable, Mapping

from xla_dynamo.compat.recording import metrics, pending
from xla_dynamo.compat.recording.metrics import count_ops
from xla_dynamo.compat.values.format_units import show_bytes, show_time
from xla_dynamo.compat.values.values import Value

_RUNTIME_COUNTERS = re.compile(
    r"CreateCompileHandles|CreateDataHandles|DestroyDataHandles|MarkStep|(?!xla::|torch::)\w+::.*"
)
_BYTES = frozenset({"InboundData", "OutboundData"})
_PLAIN = frozenset(
    {
        "InputOutputAliasCount",
        "RunCachedGraphInputData",
        "RunCachedGraphOutputData",
        "TensorsGraphSize",
    }
)
# Names of other releases of torch_xla.
_METRIC_NAMES = {
    "TransferToServerTime": "TransferToDeviceTime",
    "TransferFromServerTime": "TransferFromDeviceTime",
    "TensorToData": "TransferToDeviceTime",
    "XrtCompile": "CompileTime",
    "XrtExecute": "ExecuteTime",
}
_COUNTER_NAMES = {
    "CachedSyncTensors": "CachedCompile",
    "UncachedSyncTensors": "UncachedCompile",
    "DestroyLtcTensor": "DestroyXlaTensor",
    "ReleaseDataHandles": "DestroyDataHandles",
}
_SHORT_COUNTERS = ("CachedCompile", "MarkStep", "DynamoSyncInputExecuteTime")
_SHORT_METRICS = (
    "CompileTime",
    "ExecuteTime",
    "ExecuteReplicatedTime",
    "TransferToDeviceTime",
    "TransferFromDeviceTime",
)
_RUNTIME_METRICS = frozenset({*_SHORT_METRICS, "InboundData", "OutboundData"})
_PERCENTILES = "0.01:0.05:0.1:0.2:0.5:0.8:0.9:0.95:0.99"
# Ops that were pending when the counters were cleared; they are launched later.
_before: collections.Counter[str] = collections.Counter()


def metrics_report() -> str:
    """Every metric and counter, as torch_xla prints them."""
    return _text(metric_names(), _counted() | _derived())


def short_metrics_report(
    counter_names: Iterable[str] | None = None, metric_names: Iterable[str] | None = None
) -> str:
    """The named counters and metrics (default: those that matter most) and every fallback."""
    chosen = set(counter_names) if counter_names else set(_SHORT_COUNTERS)
    shown = list(metric_names) if metric_names else _SHORT_METRICS
    counted = _counted() | _derived()
    wanted = {name: counted[name] for name in counted if name in chosen or _is_fallback(name)}
    metrics.settle()
    return _text([name for name in shown if name in metrics.metrics], wanted)


def metric_names() -> list[str]:
    """The metrics that have samples."""
    metrics.settle()
    with metrics.lock:
        names = sorted(metrics.metrics)
    return sorted(names, key=_RUNTIME_METRICS.__contains__)


def metric_data(name: str) -> tuple[int, float, tuple[tuple[float, float], ...]] | None:
    """(number of samples, their sum, the last ones as (seconds since the epoch, value)), or None.

    Times are in nanoseconds, data in bytes.
    """
    metrics.settle()
    with metrics.lock:
        metric = metrics.metrics.get(_METRIC_NAMES.get(name, name))
        return (metric.total, metric.sum, tuple(metric.samples)) if metric else None


def counter_names() -> list[str]:
    """The counters that have counted."""
    counted = _counted()
    return _ordered([*counted, *(_DERIVED if "CreateXlaTensor" in counted else ())])


def counter_value(name: str) -> int | None:
    """The value of a counter, or None if it has not counted."""
    name = _COUNTER_NAMES.get(name, name)
    if name in _DERIVED:
        return _derived().get(name)
    if name.startswith("xla::"):
        return _counted().get(name)
    with metrics.lock:
        return metrics.counters.get(name)


def clear_metrics() -> None:
    """Forget all samples."""
    metrics.settle()
    with metrics.lock:
        metrics.metrics.clear()


def clear_counters() -> None:
    """Forget what was counted."""
    with metrics.lock:
        metrics.counters.clear()
        metrics.launches.clear()
        _before.clear()
        _before.update(_pending())


def clear_all() -> None:
    """Forget all samples and counters."""
    clear_metrics()
    clear_counters()


def executed_fallback_ops() -> list[str]:
    """The ops that ran on the CPU: "aten::nonzero"."""
    with metrics.lock:
        return [name for name in metrics.counters if _is_fallback(name)]


def _pending() -> collections.Counter[str]:
    return count_ops(collections.Counter(trace.state for trace in pending.traces()))


def _is_fallback(name: str) -> bool:
    return "::" in name and not name.startswith("xla::")


# Counters that cost something to know: computed when they are shown.
_DERIVED = ("DestroyXlaTensor", "DestroyDataHandles")


def _derived() -> dict[str, int]:
    """Tensors and arrays that are no more."""
    alive = [found for found in gc.get_objects() if type(found) is Value]
    gone = (
        metrics.counters["CreateXlaTensor"] - len(alive),
        metrics.counters["CreateDataHandles"] - sum(value.array is not None for value in alive),
    )
    return {name: value for name, value in zip(_DERIVED, gone, strict=True) if value > 0}


def _counted() -> dict[str, int]:
    """Every other counter."""
    with metrics.lock:
        counted = collections.Counter(metrics.counters)
        counted.update(count_ops(metrics.launches))
        counted.update(_pending())
        counted.subtract(_before)
    return {name: value for name, value in counted.items() if value > 0}


def _ordered(counted: Iterable[str]) -> list[str]:
    return sorted(sorted(counted), key=lambda name: bool(_RUNTIME_COUNTERS.fullmatch(name)))


def _text(shown: Iterable[str], counted: Mapping[str, int]) -> str:
    lines: list[str] = []
    listed, names = list(shown), _ordered(counted)
    for runtime in (False, True):
        for name in listed:
            if (name in _RUNTIME_METRICS) is runtime:
                lines += _metric_lines(name)
        for name in names:
            if bool(_RUNTIME_COUNTERS.fullmatch(name)) is runtime:
                lines += [f"Counter: {name}", f"  Value: {counted[name]}"]
    return "".join(f"{line}\n" for line in lines)


def _metric_lines(name: str) -> list[str]:
    total, accumulated, samples = metric_data(name) or (0, 0.0, ())
    show = unit(name)
    lines = [f"Metric: {name}", f"  TotalSamples: {total}", f"  Accumulator: {show(accumulated)}"]
    values = sorted(value for _, value in samples)
    seconds = samples[-1][0] - samples[0][0] if samples else 0.0
    if seconds > 0:
        lines.append(f"  ValueRate: {show(sum(values) / seconds)} / second")
        lines.append(f"  Rate: {len(values) / seconds:g} / second")
    if values:
        points = (
            f"{100 * point:g}%={show(values[int(point * len(values))])}" for point in _percentiles()
        )
        lines.append("  Percentiles: " + "; ".join(points))
    return lines


@functools.cache
def _percentiles() -> list[float]:
    text = os.environ.get("XLA_METRICS_PERCENTILES") or _PERCENTILES
    return [float(point) for point in text.split(":")]


def unit(name: str) -> Callable[[float], str]:
    """The function that formats a value of this metric."""
    return show_bytes if name in _BYTES else "{:.2f}".format if name in _PLAIN else show_time
