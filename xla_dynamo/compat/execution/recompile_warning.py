"""The warning that traces which begin alike keep being compiled, and what to do about it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from xla_dynamo.backend import metrics
from xla_dynamo.backend.buckets import proposal
from xla_dynamo.backend.options import Options
from xla_dynamo.bookkeeping import optional
from xla_dynamo.bounded import Bounded
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values.describe import op_at
from xla_dynamo.compat.values.source_location import Location
from xla_dynamo.config import config


@dataclass(frozen=True)
class Difference:
    """How a trace differs from those before it.

    kind: a key of `_ADVICE`; or "first" if there was none like it, or "chosen" for an integer that
        is an input from now on.
    """

    kind: str
    text: str


_ADVICE = {
    "shape": "Give it one size, or few: drop_last=True for the loader, or pad to fixed sizes.",
    "argument": "Keep that argument fixed, or pass it as a tensor (indices, masks and numbers that "
    "are tensors may change freely).",
    "op": "Issue the same ops in every step: torch.where instead of an if on values.",
    "barrier": "Put the barrier at the same place in every step, and read values (.item(), print) "
    "only every so many steps.",
    "sharding": "Mark tensors before the first step, and in the same way in each.",
    "options": "Set options once, before the first step.",
    "live": "Keep and drop the same tensors in every step: detach() and del what a log collects.",
}


@dataclass
class _Alike:
    """Traces that begin with the same op at the same line: how many were compiled.

    sizes: of the inputs of the last ones.
    """

    count: int = 0
    sizes: deque[tuple[int, ...]] = field(default_factory=lambda: deque(maxlen=256))

    def note(self, trace: Trace) -> None:
        """One more was compiled."""
        self.count += 1
        self.sizes.append(tuple([n for value in trace.inputs for n in value.meta.shape]))


_alike: Bounded[tuple[Any, Any, Location | None], _Alike] = Bounded(4096)


@optional(None)
def warn_if_many(trace: Trace, difference: Difference, options: Options) -> None:
    """Say once, for traces that begin alike, that they keep being compiled."""
    first = trace.state.path()[0]
    key = (trace.device, first.op.func, first.location)
    alike = _alike.get(key)
    if alike is None:
        alike = _alike[key] = _Alike()
    alike.note(trace)
    if alike.count < config().recompile_warning or difference.kind not in _ADVICE:
        return
    advice = _ADVICE[difference.kind]
    if difference.kind == "shape" and options.bucket is None:
        setting = "XLA_DYNAMO_BUCKET (or xla_dynamo.compat.set_option('bucket', ...))"
        advice += f" Or let sizes be padded for you: {proposal([*alike.sizes], setting)}."
    metrics.warn_once(
        ("trace", key),
        f"{alike.count} programs were compiled for traces that begin with {op_at(first)}. The last "
        f"one because: {difference.text}. {advice} xla_dynamo.compiles() lists them all; "
        "docs/recompilation.md explains.",
        metrics.RecompileWarning,
    )
