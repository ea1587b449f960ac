"""Programs of XLA:CPU and PyTorch's kernels in turn, on arrays of the lazy device.

The thread that launches runs them on the arrays' memory, as torch.compile does (static_program).
The last part, in which parameters get their new values, is a program of the device itself: it takes
over memory, and the launch returns before it is done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx, plain
from xla_dynamo.backend.graph.torch_private import kernels_only
from xla_dynamo.backend.lowering import host_kernels
from xla_dynamo.backend.passes.static.eager_layout import infer_strides
from xla_dynamo.backend.runtime import buffers, pjrt, transfers
from xla_dynamo.bookkeeping import optional

from . import (
    cores,
    known,
    known_turns,
    last_part,
    partition,
    segments,
    static_program,
    torch_kernels,
    updates,
)
from .compile import compile_executable
from .parts import Parts, Whole, told
from .request import Request
from .turns import Turns

Run = Callable[[list[Any]], Sequence[Any]]


def kernels_of(graph: Graph, request: Request, device: pjrt.Device) -> list[Node]:
    """The nodes that PyTorch computes between programs; none where other devices share the cores.

    There programs would wait for each other's threads.
    """
    alone = device.platform == "cpu" and device.client.device_count() == 1
    return _left(graph, request) if alone else []


def _left(graph: Graph, request: Request) -> list[Node]:
    """The nodes that are left to PyTorch.

    What a layer of oneDNN's keeps for its gradient has another size than XLA's, which would compute
    one of the two where only one of their windows is padded.
    """
    found = torch_kernels.between_programs(graph, request)
    if request.options.bucket is None:
        return found
    return [node for node in found if node.target not in host_kernels.PAYS_BETWEEN]


def compile_in_turn(
    graph: Graph,
    request: Request,
    device: pjrt.Device,
    donated: Collection[int],
    kernels: Collection[Node],
) -> InTurn:
    """Compile `graph`, whose results are distinct computed tensors, split at `kernels`.

    Raises:
        CompileError, UnsupportedOp.
    """
    first, last = last_part.split_off(graph, kernels)
    infer_strides(first.graph)
    parts = Parts()
    compile_last = functools.partial(_last, graph, last, request, device, donated, parts)
    own = _left(first.graph, request)
    turns, last_program = static_program.in_turn(first.graph, request, own, parts, [compile_last])
    whole = static_program.recorded(parts, request, graph)
    return InTurn(turns, last_program, _wiring(graph, first, last), device, whole)


@dataclass(frozen=True)
class LastProgram:
    """The program of the last part, if there is one; `elements` of all its results: see cores."""

    executable: pjrt.Executable | None = None
    elements: int = 0


def _last(
    graph: Graph,
    part: partition.Segment,
    request: Request,
    device: pjrt.Device,
    donated: Collection[int],
    parts: Parts,
) -> LastProgram:
    if not part.outputs:
        return LastProgram()
    given = fx.placeholders(graph)
    own = [i for i, node in enumerate(part.inputs) if node in given]
    given_up = [i for i in own if given.index(part.inputs[i]) in donated]
    aliases = updates.taken_over(part.graph, given_up)
    elements = cores.elements(part.graph)
    request = replace(request, name=f"{request.name} last part", parts=parts)
    return LastProgram(compile_executable(part.graph, request, device, aliases), elements)


@dataclass(frozen=True)
class Wiring:
    """Which values go where, each by its number.

    of_first: the arguments that the turns take.
    of_last: what the last part takes, of the arguments and the results of the turns.
    results: those of the whole, of the results of the turns and of the last part.
    late: which results of the whole are computed last.
    """

    of_first: tuple[int, ...]
    of_last: tuple[int, ...]
    results: tuple[int, ...]
    late: tuple[int, ...]


def _wiring(graph: Graph, first: partition.Segment, last: partition.Segment) -> Wiring:
    given = fx.placeholders(graph)
    known = {node: i for i, node in enumerate((*given, *first.outputs))}
    computed = {node: i for i, node in enumerate((*first.outputs, *last.outputs))}
    results = [computed[node] for node in fx.results(graph)]
    return Wiring(
        tuple(given.index(node) for node in first.inputs),
        tuple(known[node] for node in last.inputs),
        tuple(results),
        tuple(i for i, at in enumerate(results) if at >= len(first.outputs)),
    )


class InTurn:
    """Takes arrays of a device, and gives some."""

    def __init__(
        self,
        turns: Turns,
        last: LastProgram,
        wiring: Wiring,
        device: pjrt.Device,
        whole: Whole | None,
    ) -> None:
        self.turns, self.last, self.wiring, self.whole = turns, last, wiring, whole
        self._device = device
        self._first = segments.runner(turns.graph)
        self._last = _run_of(last)
        # Or a thread of XLA's would free PyTorch's tensors, and at the exit be ended while at it.
        self._in_use: Sequence[Any] = ()

    @property
    def aliases(self) -> int:
        """How many results take over memory."""
        return 0 if self.last.executable is None else self.last.executable.aliases

    @property
    def late(self) -> tuple[int, ...]:
        """The positions of the results that are computed last."""
        return self.wiring.late

    @property
    def observed(self) -> Any:
        """What an observer of launches keeps of it."""
        return None if self.whole is None else self.whole.observed

    def __call__(self, arrays: list[Any]) -> Sequence[Any]:
        return told(self._launch, arrays, self.whole)

    def _launch(self, arrays: list[Any]) -> Sequence[Any]:
        self._in_use = ()  # of the launch before
        wiring = self.wiring
        given = [arrays[i] for i in wiring.of_first]
        with kernels_only():  # whatever modes the thread is in
            # No tensor is left where the last part takes over the memory of its array.
            tensors = self._first(transfers.to_tensors(given, self._device, host=True))
            made = [buffers.transient(tensor, self._device) for tensor in tensors]
            del tensors
        self._in_use = made
        known = [*arrays, *made]
        computed = [*made, *self._last([known[i] for i in wiring.of_last])]
        return [computed[i] for i in wiring.results]


def _run_of(last: LastProgram) -> Run:
    executable = last.executable
    if executable is None:
        return list

    program = cores.alone(executable, last.elements)
    return lambda arrays: program(*arrays)


def to_json(of: InTurn) -> tuple[dict[str, Any], list[pjrt.Executable]] | None:
    """All but the programs, and these; None where that is not all: a part may run in eager."""
    if of.whole is None:
        return None
    try:
        told, programs = known_turns.to_json(of.turns)
    except plain.NotPlain:
        return None
    last = [] if of.last.executable is None else [of.last.executable]
    record = of.whole.record
    told |= {"elements": of.last.elements, "has_last": bool(last)}
    told |= {"wiring": asdict(of.wiring), "record": [record.shapes, record.nodes]}
    return told, [*programs, *last]


@optional(None)
def from_disk(
    entry: known.Entry,
    told: dict[str, Any],
    request: Request,
    device: pjrt.Device,
    where: known_turns.Where,
    location: str,
) -> InTurn | None:
    """What an earlier process kept as `told`, with its programs; None if one is gone.

    where: the user's line of a node that is a kernel. location: that of the first op.
    """
    first = len(entry.programs) - told["has_last"]
    devices = [pjrt.device("cpu")] * first + [device] * told["has_last"]
    found = known_turns.load(entry, request, devices, location)
    if found is None:
        return None
    programs = found.programs
    turns = known_turns.of_json(told, programs[:first], where)
    last = LastProgram(programs[first] if told["has_last"] else None, told["elements"])
    wiring = Wiring(**{name: tuple(of) for name, of in told["wiring"].items()})
    shapes, nodes = told["record"]
    record = request.name, tuple(shapes), nodes, request.reason, location
    whole = found.parts.record(*record, next(iter(programs), None))
    return InTurn(turns, last, wiring, device, whole)
