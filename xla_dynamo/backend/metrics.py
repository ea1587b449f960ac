"""Records of compiles and passes, warnings of fallbacks and recompiles, and counters.

Public through `xla_dynamo`: `compiles()`, `counters()`, `transfers()`, `passes()`, `capture()`,
`reset_metrics()`.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch.fx import Graph

from xla_dynamo.bookkeeping import optional
from xla_dynamo.bounded import Bounded
from xla_dynamo.config import config

_lock = threading.Lock()
_counters: collections.Counter[str] = collections.Counter()
# Bounded: a process that keeps compiling must not grow.
_compiles: collections.deque[CompileRecord] = collections.deque(maxlen=10_000)
_passes: dict[str, PassRecord] = {}
_transfers = [0, 0, 0, 0]
_captures: list[list[Stages]] = []
_dumped: collections.Counter[str] = collections.Counter()  # files by graph; only for dumps
# What was warned of, by what makes it the same warning: category, message.
_reported: Bounded[object, tuple[type[Warning], str]] = Bounded(10_000)
_fallbacks: Bounded[FallbackRecord, bool] = Bounded(1000)

compile_log = logging.getLogger("xla_dynamo.compiles")
_STAGES = ("fx", "torch_dialect", "stablehlo", "hlo")
_stage_logs = {stage: logging.getLogger(f"xla_dynamo.{stage}") for stage in _STAGES}


class FallbackWarning(UserWarning):
    """An op or a graph runs on the CPU in eager PyTorch instead of on XLA."""


class RecompileWarning(UserWarning):
    """A graph keeps being compiled for new shapes."""


class BucketWarning(UserWarning):
    """A size that changes is not padded to a bucket, because an op has no padded form."""


@dataclass(frozen=True)
class CompileRecord:
    """One XLA executable that was made.

    Attributes:
        graph: which graph: "0/0 forward" is Dynamo's compile id and the kind of the graph.
        shapes: the dtypes and shapes of its arguments: "float32[16, 4]".
        nodes: how many FX nodes it has.
        lowering_seconds: time from the FX graph to StableHLO.
        compile_seconds: time of XLA, or of loading from disk.
        from_disk: whether the executable came from the disk cache.
        reason: "first call", or which argument and dimension changed.
        location: the user's line of the first op: "train.py:12".
    """

    graph: str
    shapes: tuple[str, ...]
    nodes: int
    lowering_seconds: float
    compile_seconds: float
    from_disk: bool
    reason: str
    location: str

    def __str__(self) -> str:
        source = "loaded from disk" if self.from_disk else "compiled"
        return (
            f"{self.graph}: {self.nodes} ops lowered in {self.lowering_seconds:.2f} s, {source} in "
            f"{self.compile_seconds:.2f} s for ({', '.join(self.shapes)}): {self.reason}; "
            f"first op at {self.location}"
        )


@dataclass(frozen=True)
class FallbackRecord:
    """What runs on the CPU: an op of a line ("aten::nonzero"), or a graph; why, and what to do."""

    op: str
    location: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class PassRecord:
    """What one graph pass has done in this process.

    Attributes:
        runs: how many graphs it ran on.
        changed: how many of them it changed.
        seconds: the time that it took for all of them.
    """

    runs: int = 0
    changed: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Transfers:
    """What was copied between the host and a device that has memory of its own.

    Attributes:
        to_device: how many tensors went to the device.
        bytes_to_device: their size in bytes.
        to_host: how many tensors came from there.
        bytes_to_host: their size in bytes.
    """

    to_device: int = 0
    bytes_to_device: int = 0
    to_host: int = 0
    bytes_to_host: int = 0


@dataclass
class Stages:
    """The text of each stage of one executable: FX, torch dialect, StableHLO, optimized HLO."""

    graph: str
    fx: str = ""
    torch_dialect: str = ""
    stablehlo: str = ""
    hlo: str = ""

    def write(self, folder: Path) -> None:
        """One file a stage, named after the graph."""
        folder.mkdir(parents=True, exist_ok=True)
        name = _file_name(self.graph)
        for stage, suffix in zip(
            _STAGES, ("fx.py", "torch.mlir", "stablehlo.mlir", "hlo.txt"), strict=True
        ):
            (folder / f"{name}.{suffix}").write_text(getattr(self, stage))


def _file_name(graph: str) -> str:
    return graph.replace("/", "_").replace(" ", "_").replace(".", "_")


def count(name: str, by: int = 1) -> None:
    """Add to a counter."""
    with _lock:
        _counters[name] += by


def counters() -> dict[str, int]:
    """What was counted since the last `reset_metrics()`, by name.

    "fallback.aten::nonzero" counts calls of that op on the CPU, "fallback.graph" whole graphs that
    run in eager PyTorch, "bucket.exact" dimensions that go back to exact sizes,
    "trial_compiles" programs that another process compiled first, and the names of torch_xla's
    metrics ("MarkStep", "CachedCompile", ...) what they count there.
    """
    with _lock:
        return dict(_counters)


def transfers() -> Transfers:
    """What programs of torch.compile copied since the last `reset_metrics()`, on CPU tensors.

    Nothing where programs run on the CPU: they share its memory.
    """
    with _lock:
        return Transfers(*_transfers)


def count_transfer(size: int, *, to_device: bool) -> None:
    """Add a tensor of `size` bytes that was copied."""
    at = 0 if to_device else 2
    with _lock:
        _transfers[at] += 1
        _transfers[at + 1] += size


def compiles() -> list[CompileRecord]:
    """Every executable made since the last `reset_metrics()`, oldest first, the last 10,000."""
    with _lock:
        return list(_compiles)


def reset_metrics() -> None:
    """Forget counters, records of compiles, passes and transfers, and which warnings were given."""
    with _lock:
        _counters.clear()
        _compiles.clear()
        _passes.clear()
        _transfers[:] = [0, 0, 0, 0]
        _reported.clear()
        _fallbacks.clear()


def record_compile(record: CompileRecord) -> None:
    with _lock:
        _compiles.append(record)
    compile_log.info("%s", record)


def record_fallback(record: FallbackRecord) -> None:
    """Note what runs on the CPU; `counters()` counts how often."""
    with _lock:
        _fallbacks[record] = True


def fallbacks() -> list[FallbackRecord]:
    """What runs on the CPU, of what was compiled since the last `reset_metrics()`."""
    with _lock:
        return list(_fallbacks)


def passes() -> dict[str, PassRecord]:
    """Every graph pass that ran since the last `reset_metrics()`, by name, in order of first runs.

    `xla_dynamo.backend.pipeline` lists the passes and their stages.
    """
    with _lock:
        return dict(_passes)


def record_pass(name: str, changed: bool, seconds: float) -> None:
    """Add one run of a pass to its record."""
    with _lock:
        old = _passes.get(name, PassRecord())
        _passes[name] = PassRecord(old.runs + 1, old.changed + changed, old.seconds + seconds)


@optional(None)
def dump_pass(graph_name: str, stage: str, name: str, graph: Graph) -> None:
    """Write a graph as a pass left it, if XLA_DYNAMO_DUMP asks for it: the passes are numbered."""
    folder = config().dump
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with _lock:
        _dumped[graph_name] += 1
        number = _dumped[graph_name]
    file = folder / f"{_file_name(graph_name)}.{number:02}.{stage}.{name}.fx.py"
    file.write_text(str(graph))


def warn_once(key: object, message: str, category: type[Warning]) -> None:
    """Give a warning the first time that it comes with `key`."""
    with _lock:
        if key in _reported:
            return
        _reported[key] = category, message
    warnings.warn(message, category, stacklevel=2)


def warned() -> list[tuple[type[Warning], str]]:
    """The warnings that came since the last `reset_metrics()`."""
    with _lock:
        return list(_reported.values())


@contextlib.contextmanager
def capture() -> Iterator[list[Stages]]:
    """Collect the stages of everything compiled inside the block (all threads): a context manager.

    The list that it gives grows by one `Stages` for each executable. What was compiled before is
    not compiled again: call torch.compiler.reset() first.
    """
    stages: list[Stages] = []
    with _lock:
        _captures.append(stages)
    try:
        yield stages
    finally:
        with _lock:
            # By identity: two captures that are open at once may hold equal lists.
            _captures[:] = [open_ for open_ in _captures if open_ is not stages]


def wants_stages() -> bool:
    """Whether the stages' text is needed: printing it takes time."""
    logged = any(log.isEnabledFor(logging.DEBUG) for log in _stage_logs.values())
    return bool(_captures) or config().dump is not None or logged


@optional(None)
def publish_stages(stages: Stages) -> None:
    """Hand finished stages to captures, the dump folder and the loggers."""
    with _lock:
        for open_ in _captures:
            open_.append(stages)
    folder = config().dump
    if folder is not None:
        stages.write(folder)
    for stage, log in _stage_logs.items():
        log.debug("%s\n%s", stages.graph, getattr(stages, stage))
