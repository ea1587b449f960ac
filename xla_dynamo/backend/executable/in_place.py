"""A program of the CPU writes large results into the arguments that they replace, by itself.

AOTAutograd would have all new values in memory at once, and copy them afterwards. PJRT takes CPU
tensors as memory that no program writes to, so this is a custom call (ops/stores.py), which is
given addresses. It comes after everything that reads the argument: all results that depend on it
go through the call, and what no result depends on is not computed.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.jax_adapter import LEAST_MEMORY
from xla_dynamo.backend.runtime import pjrt, transfers

from .output_plan import Output
from .request import Request

# A call takes some 30 us, and results below it are few bytes.
_LEAST_BYTES = 2**16


@dataclass(frozen=True)
class Stores:
    """The arguments of a call that its program writes to, by position, in the order of addresses.

    results: how many results the program has that are no marks of writes.
    """

    targets: tuple[int, ...]
    results: int


def is_possible(request: Request, device: pjrt.Device) -> bool:
    """Whether programs for `request` on `device` may write into arguments, with some gain."""
    if not LEAST_MEMORY:
        return False
    return request.stores and request.context(pjrt.platform(device)).target.kernels == "torch"


def with_little_memory(request: Request) -> Request:
    """`request` for a program that writes each result as soon as it is computed."""
    chosen = {**LEAST_MEMORY, **request.options.compiler_options}
    return replace(request, options=replace(request.options, compiler_options=chosen))


def choose(
    graph: Graph, planned: Sequence[Output], aliases: Mapping[int, int], used: Sequence[int]
) -> tuple[list[Output], Stores] | None:
    """Let the program store what it may (`graph` is edited), and what its outputs are then.

    aliases: see `updates.aliases`. used: the arguments of the call that the program takes; one more
    comes last, the addresses.
    """
    results, placeholders = fx.results(graph), fx.placeholders(graph)
    uses = [output.array for output in planned]
    fit = {
        argument: result
        for argument, result in aliases.items()
        if uses.count(result) == 1 and _is_fit(placeholders[argument].meta["val"])
    }
    readers = {argument: _results_of(placeholders[argument], results) for argument in fit}
    groups = [(members, read - {fit[m] for m in members}) for members, read in _groups(readers)]
    groups = [group for group in groups if all(_is_small(results[i]) for i in group[1])]
    if len(groups) < 2:  # all new values would be there at once
        return None
    addresses = _placeholder(graph, sum(len(members) for members, _ in groups))
    order: list[int] = []
    copies: dict[int, Node] = {}
    marks = []
    for members, others in groups:
        listed = sorted(others)
        values = [results[fit[argument]] for argument in members]
        with graph.inserting_before(graph.output_node()):
            op = torch.ops.xla_dynamo.store.default
            args = (values, [results[i] for i in listed], addresses, len(order))
            call = edit.call(graph, op, *args, like=values[0])
            mark, *made = [
                edit.call(graph, operator.getitem, call, i, like=call)
                for i in range(len(listed) + 1)
            ]
        marks.append(mark)
        copies.update(zip(listed, made, strict=True))
        order += members
    stored = {fit[argument]: used[argument] for argument in order}
    left = [i for i in range(len(results)) if i not in stored]
    graph.output_node().args = (tuple([copies.get(i, results[i]) for i in left] + marks),)
    targets = tuple(used[argument] for argument in order)
    return [_moved(output, left, stored) for output in planned], Stores(targets, len(left))


def _moved(output: Output, left: Sequence[int], given: Mapping[int, int]) -> Output:
    if output.array is None:
        return output
    if output.array in given:
        detached = ((torch.ops.aten.detach.default, (), {}),)
        return Output(argument=given[output.array], view_ops=detached)
    return replace(output, array=left.index(output.array))


def _is_fit(value: torch.Tensor) -> bool:
    is_plain = value.device.type == "cpu" and value.is_contiguous() and not value.is_complex()
    return is_plain and value.dtype.itemsize > 1 and value.nbytes >= _LEAST_BYTES


def _is_small(result: Node) -> bool:
    """Whether a result that depends on what is written to may be copied, to be complete before."""
    return result.meta["val"].nbytes < _LEAST_BYTES


def _placeholder(graph: Graph, count: int) -> Node:
    mode = fx.placeholders(graph)[0].meta["val"].fake_mode
    with mode:
        value = torch.empty(count, dtype=torch.int64, device="cpu")
    return edit.append_placeholder(graph, "addresses", {"val": value})


def _results_of(node: Node, results: Sequence[Node]) -> set[int]:
    """The results that depend on `node`."""
    seen, waiting = {node}, [node]
    while waiting:
        new = set(waiting.pop().users) - seen
        seen |= new
        waiting += new
    return {i for i, result in enumerate(results) if result in seen}


def _groups(readers: Mapping[int, set[int]]) -> list[tuple[list[int], set[int]]]:
    """The arguments of one call each, and all results that depend on any of them.

    They are those whose new values depend on one another's old ones.
    """
    groups: list[tuple[list[int], set[int]]] = []
    for argument, read in readers.items():
        members, results = [argument], set(read)
        for group in [group for group in groups if not results.isdisjoint(group[1])]:
            groups.remove(group)
            members, results = group[0] + members, group[1] | results
        groups.append((members, results))
    return groups


class Addresses:
    """Where a call's program writes to."""

    def __init__(self, stores: Stores, used: Sequence[int], device: pjrt.Device) -> None:
        self._targets, self._used, self._device = stores.targets, used, device
        self._known: tuple[list[int], pjrt.Array] | None = None

    def of(self, given: Sequence[torch.Tensor]) -> tuple[pjrt.Array, list[torch.Tensor]]:
        """The addresses as an array, and for each target the tensor there.

        That is the target itself, or where its memory is not row-major, or shared with another
        argument, one from which it has to be copied.
        """
        targets = [given[position] for position in self._targets]
        if not all(target.is_contiguous() for target in targets) or self._overlap(given):
            targets = [torch.empty(x.shape, dtype=x.dtype, device="cpu") for x in targets]
        numbers = [target.data_ptr() for target in targets]
        if self._known is None or self._known[0] != numbers:
            array = transfers.to_array(torch.tensor(numbers, device="cpu"), self._device)
            self._known = numbers, array
        return self._known[1], targets

    def _overlap(self, given: Sequence[torch.Tensor]) -> bool:
        """Whether a target has memory in common with another argument that is read in place."""
        ranges = []
        for position in self._used:
            x = given[position]
            if x.is_contiguous():
                start = x.data_ptr()
                ranges.append((start, start + x.nbytes))
        ranges.sort()
        return any(end > start for (_, end), (start, _) in itertools.pairwise(ranges))

    def finish(self, given: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> None:
        """Copy what was not written in place."""
        for position, x in zip(self._targets, written, strict=True):
            if x is not given[position]:
                given[position].detach().copy_(x)
