"""Programs of XLA:CPU and PyTorch's kernels in turn, on arrays of the lazy device.

The thread that launches runs them on the arrays' memory, as torch.compile does (static_program).
The last part, in which parameters get their new values, is a program of the device itself: it takes
over memory, and the launch returns before it is done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import Graph, GraphModule, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.torch_private import kernels_only
from xla_dynamo.backend.lowering import host_kernels
from xla_dynamo.backend.passes.static.eager_layout import infer_strides
from xla_dynamo.backend.runtime import buffers, pjrt, transfers

from . import cores, last_part, partition, static_program, torch_kernels, updates
from .compile import compile_executable
from .parts import Parts, Whole, told
from .request import Request

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
    module = GraphModule({}, Graph())
    run, (run_last, aliases) = static_program.in_turn(
        first.graph, module, request, own, parts, [compile_last]
    )
    whole = static_program.recorded(parts, request, graph)
    return InTurn(graph, (first, last), device, (run, run_last), aliases, whole)


def _last(
    graph: Graph,
    part: partition.Segment,
    request: Request,
    device: pjrt.Device,
    donated: Collection[int],
    parts: Parts,
) -> tuple[Run, int]:
    """The launch of the last part, and how many of its results take over memory."""
    if not part.outputs:
        return list, 0
    given = fx.placeholders(graph)
    own = [i for i, node in enumerate(part.inputs) if node in given]
    given_up = [i for i in own if given.index(part.inputs[i]) in donated]
    aliases = updates.taken_over(part.graph, given_up)
    is_long = cores.is_long(part.graph)
    request = replace(request, name=f"{request.name} last part", parts=parts)
    executable = compile_executable(part.graph, request, device, aliases)

    def run(arrays: list[Any]) -> Sequence[Any]:
        return executable(*arrays)

    return cores.without_kernels(run) if is_long else run, len(aliases)


class InTurn:
    """Takes arrays of a device, and gives some.

    aliases: how many results take over memory.
    late: the positions of the results that are computed last.
    """

    def __init__(
        self,
        graph: Graph,
        parts: tuple[partition.Segment, partition.Segment],
        device: pjrt.Device,
        runs: tuple[Run, Run],
        aliases: int,
        whole: Whole | None,
    ) -> None:
        first, last = parts
        given = fx.placeholders(graph)
        self.aliases, self._device, self._whole = aliases, device, whole
        self._first, self._last = runs
        # Or a thread of XLA's would free PyTorch's tensors, and at the exit be ended while at it.
        self._in_use: Sequence[Any] = ()
        self._of_first = [given.index(node) for node in first.inputs]
        known = {node: i for i, node in enumerate((*given, *first.outputs))}
        self._of_last = [known[node] for node in last.inputs]
        computed = {node: i for i, node in enumerate((*first.outputs, *last.outputs))}
        self._results = [computed[node] for node in fx.results(graph)]
        self.late = [i for i, at in enumerate(self._results) if at >= len(first.outputs)]

    def __call__(self, arrays: list[Any]) -> Sequence[Any]:
        return told(self._launch, arrays, self._whole)

    def _launch(self, arrays: list[Any]) -> Sequence[Any]:
        self._in_use = ()  # of the launch before
        given = [arrays[i] for i in self._of_first]
        with kernels_only():  # whatever modes the thread is in
            # No tensor is left where the last part takes over the memory of its array.
            tensors = self._first(transfers.to_tensors(given, self._device, host=True))
            made = [buffers.transient(tensor, self._device) for tensor in tensors]
            del tensors
        self._in_use = made
        known = [*arrays, *made]
        computed = [*made, *self._last([known[i] for i in self._of_last])]
        return [computed[i] for i in self._results]
