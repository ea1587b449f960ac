"""A program that XLA partitions over several devices, by the shardings of its arguments.

Results that take over the memory of an argument are split as that one is, so that a training step
that is repeated finds its parameters as it left them; XLA chooses for the others. A dimension whose
size is no multiple of its parts is padded in arguments and results, and only there: the graph
slices the arguments, and pads the results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.lowering.linker import NO_SHARDINGS, Shardings
from xla_dynamo.backend.ops.sharding import MARK
from xla_dynamo.backend.runtime import partitions, pjrt, shardings
from xla_dynamo.backend.runtime.partitions import Partitions
from xla_dynamo.backend.runtime.shardings import Sharding
from xla_dynamo.bounded import Bounded
from xla_dynamo.errors import UnsupportedOp

from . import joint, manual_values

aten = torch.ops.aten


def with_results(
    graph: Graph,
    on: Partitions,
    aliases: Mapping[int, int],
    manual: manual_values.Grids = MappingProxyType({}),
) -> Partitions:
    """`on`, with a place for each result: those that replace an argument are split like it.

    manual: see manual_values.
    """
    results = fx.results(graph)
    outputs = [*on.outputs, *[None] * (len(results) - len(on.outputs))]
    for position, result in enumerate(results):
        if result in manual:
            dims = max(result.meta["val"].dim(), 1)
            outputs[position] = shardings.manual(manual[result], dims)
    for argument, result in aliases.items():
        outputs[result] = outputs[result] or on.inputs[argument]
    return replace(on, outputs=tuple(outputs))


def gather(graph: Graph, on: Partitions) -> None:
    """Have what is split to save memory whole where something is computed with it.

    XLA would as well gather a batch to compute with parts of the parameters.
    """
    for argument, sharding in zip(fx.placeholders(graph), on.inputs, strict=True):
        if sharding.role == "parameter":
            whole = shardings.replicated(sharding.grid, len(sharding.dims)).attribute()
            _gather(graph, argument, whole)


def _gather(graph: Graph, part: Node, whole: str) -> None:
    users = [user for user in part.users if user.op == "call_function"]
    casts = [user for user in users if user.target is aten._to_copy.default]
    takers = [user for user in users if user not in casts and not _is_pointwise(user)]
    if takers:
        with graph.inserting_before(min(takers)):
            gathered = edit.call(graph, MARK, part, whole, like=part)
        for user in takers:
            user.replace_input_with(part, gathered)
    for cast in casts:
        _gather(graph, cast, whole)


def _is_pointwise(node: Node) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def pad(graph: Graph, on: Partitions) -> None:
    """Give arguments and results of `graph` the sizes that their arrays have."""
    for node, sharding in zip(fx.placeholders(graph), on.inputs, strict=True):
        shape = tuple(node.meta["val"].shape)
        if sharding.role == "manual":
            manual_values.enter(graph, node, sharding)
        elif sharding.padded(shape) != shape:
            _unpad_argument(graph, node, sharding)
    results = fx.results(graph)
    output = graph.output_node()
    with graph.inserting_before(output):
        padded = [
            _padded(graph, node, sharding)
            for node, sharding in zip(results, on.outputs, strict=True)
        ]
    output.args = (tuple(padded),)


def _unpad_argument(graph: Graph, node: Node, sharding: Sharding) -> None:
    value = node.meta["val"]
    users, new = list(node.users), node
    node.meta["val"] = value.new_empty(sharding.padded(value.shape))
    with graph.inserting_before(fx.placeholders(graph)[-1].next):
        for dim, size in enumerate(value.shape):
            if new.meta["val"].shape[dim] != size:
                new = edit.call(graph, aten.slice.Tensor, new, dim, 0, size, like=node)
        new = edit.call(graph, MARK, new, sharding.attribute(), like=node)
    for user in users:
        user.replace_input_with(node, new)


def _padded(graph: Graph, node: Node, sharding: Sharding | None) -> Node:
    shape = tuple(node.meta["val"].shape)
    if sharding is not None and sharding.role == "manual":
        return manual_values.leave(graph, node, sharding)
    if sharding is None or sharding.padded(shape) == shape:
        return node
    after: list[int] = []
    for size, wanted in zip(reversed(shape), reversed(sharding.padded(shape)), strict=True):
        after.extend((0, wanted - size))
    return edit.call(graph, aten.constant_pad_nd.default, node, after, 0, like=node)


def refuse_padding(graph: Graph, on: Partitions, on_cpu: Collection[Node]) -> None:
    """Raise if an op that runs on the CPU takes an argument whose array is padded.

    Raises:
        UnsupportedOp: it does.
    """
    for node, sharding in zip(fx.placeholders(graph), on.inputs, strict=True):
        shape = tuple(node.meta["val"].shape)
        found = next((user for user in node.users if user in on_cpu), None)
        if found is not None and sharding.padded(shape) != shape:
            raise UnsupportedOp(
                f"{found.target} runs on the CPU, and takes a tensor of shape {shape}, which "
                f"{sharding.text()} splits into unequal parts. Split it evenly, or not at all."
            )


def attributes(on: pjrt.Where) -> Shardings:
    """How the arguments and results of a program are split, as the linker takes it."""
    if not isinstance(on, Partitions):
        return NO_SHARDINGS
    known = [each for each in (*on.inputs, *on.outputs) if each is not None]
    # One grid, where it can be: Shardy looks for shardings among values of one only.
    main = next((each.grid for each in known if not each.is_replicated), None)
    has_batch = any(each.role == "batch" for each in known)

    def text(sharding: Sharding | None) -> str | None:
        if sharding is None:
            return None
        if sharding.is_replicated and main is not None:
            sharding = shardings.replicated(main, len(sharding.dims))
        return sharding.attribute(int(has_batch and sharding.role != "batch"))

    return Shardings([text(each) for each in on.inputs], [text(each) for each in on.outputs])


class ByShardings:
    """Arrays in, arrays out: programs of one graph, one for each way that its arguments are split.

    compile: called with the graph (it is edited) and the devices with those shardings.
    updates: by argument, the result that takes over its memory, whatever way that is split.
    """

    def __init__(
        self,
        graph: Graph,
        on: Partitions,
        compile: Callable[[Graph, Partitions], Callable[..., Sequence[Any]]],
        updates: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._graph = graph
        self._on = on
        self._compile = compile
        self._updates = updates
        self.aliases = len(updates)
        self._programs: Bounded[tuple[Sharding, ...], Callable[..., Sequence[Any]]] = Bounded(64)

    def __call__(self, *arrays: Any) -> Sequence[Any]:
        """Launch; returns before the devices are done."""
        key = tuple(partitions.sharding_of(a) or self._on.replicated(a.ndim) for a in arrays)
        run = self._programs.get(key)
        if run is None:
            graph = fx.copy(self._graph)
            on = with_results(graph, Partitions(self._on.devices, key), self._updates)
            pad(graph, on)
            text = f"{graph} {attributes(on)} {sorted(self._updates.items())}"
            run = joint.together(text, lambda: self._compile(graph, on))
            self._programs[key] = run
        return run(*arrays)
