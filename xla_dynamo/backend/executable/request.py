"""What is asked for when a graph is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from xla_dynamo.backend import metrics
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.passes.contract import Context, WayIn, target_of
from xla_dynamo.backend.passes.padding.plan import Agreement
from xla_dynamo.backend.runtime.platforms import default_platform

from .parts import Parts


@dataclass(frozen=True)
class Request:
    """How a graph is compiled, and which of its arguments and outputs are special.

    name, reason: for the compile record.
    resident: argument positions whose tensors come again at every call.
    visible: number of leading outputs that the user sees: they get the strides eager would give.
    way_in: how the graph came here, which decides the passes that it gets.
    no_output_aliasing: whether outputs must not share memory with each other.
    capture: one object for graphs that are recompiled for the same reasons.
    results: the names that backward knows its saved values by.
    updates: by the position of a result: that of the argument into which it is copied.
    stores: whether the program may write to those itself: nothing is differentiated.
    parts: what the graph is a part of, if all its parts are recorded as one.
    between: the outputs of a part that other parts alone read: those may share memory.
    """

    name: str
    reason: str
    resident: frozenset[int]
    visible: int
    options: Options
    way_in: WayIn
    no_output_aliasing: bool = False
    capture: Agreement = field(default_factory=Agreement, compare=False)
    results: tuple[str, ...] = ()
    updates: Mapping[int, int] = field(default_factory=dict)
    stores: bool = False
    parts: Parts | None = field(default=None, compare=False)
    between: frozenset[int] = frozenset()

    def alone(self, outputs: int) -> frozenset[int]:
        """The positions of those of its `outputs` that share memory with nothing."""
        return frozenset(range(outputs)) - self.between if self.no_output_aliasing else frozenset()

    def context(self, platform: str | None = None) -> Context:
        """What passes are told; default platform: the one that the options or the process name."""
        platform = platform or self.options.platform or default_platform()
        return Context(self.name, self.way_in, target_of(self.options, platform))


def without_host_kernels(request: Request) -> Request:
    """`request` for a program that XLA partitions: it cannot partition kernels of PyTorch's."""
    return replace(request, options=replace(request.options, cpu_kernels="xla"))


def warn_of_eager(request: Request, error: Exception) -> None:
    """Warn that a whole graph runs on the CPU, because a compiler refused it."""
    metrics.record_fallback(metrics.FallbackRecord(request.name, "", str(error)))
    metrics.warn_once(
        ("graph", str(error)),
        f"{request.name} runs on the CPU in eager PyTorch: {error}",
        metrics.FallbackWarning,
    )
