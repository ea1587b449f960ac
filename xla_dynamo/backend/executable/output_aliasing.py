"""Results of a graph that share memory in eager -> the tensor that each is a view of.

That is a result that takes all of the memory; or, where results have elements in common and none
takes all, what they are parts of. Other parts have memory of their own, so that XLA need not keep
the whole.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from xla_dynamo.backend.graph import memory_layout, view_chain

# A tensor's memory, and whether its numbers are seen as negatives or conjugates.
Memory = tuple[int, bool, bool]


def _memory(node: Node) -> Memory:
    """Equal for two values that are views of one tensor, and of the same numbers in it."""
    value = node.meta["val"]
    return value.untyped_storage()._cdata, value.is_neg(), value.is_conj()


def is_shared(node: Node, other: Node) -> bool:
    """Whether two values of one dtype are of the same numbers in the same memory."""
    value = node.meta["val"]
    same = isinstance(value, torch.Tensor) and value.dtype is other.meta["val"].dtype
    return same and _memory(node) == _memory(other)


def wholes(results: Sequence[Any]) -> dict[Memory, Node]:
    """By memory: the first result that is dense and takes all of it, or what takes all of it."""
    found: dict[Memory, Node] = {}
    for result in _computed(results):
        if _is_whole(result):
            found.setdefault(_memory(result), result)
    covered = {memory for memory, *_ in found}
    for memory, parts in overlapping(results).items():
        if memory not in covered and (source := _source(parts[0])) is not None:
            found[memory, False, False] = source
    return found


def overlapping(results: Sequence[Any]) -> dict[int, list[Node]]:
    """By memory: the results that are views of it, where two have an element in common."""
    groups: dict[int, list[Node]] = collections.defaultdict(list)
    for result in dict.fromkeys(_computed(results)):
        groups[_memory(result)[0]].append(result)
    return {
        memory: group
        for memory, group in groups.items()
        if len(group) > 1 and memory_layout.overlap([node.meta["val"] for node in group])
    }


def made_of(results: Sequence[Any]) -> dict[Node, tuple[Node, view_chain.Steps]]:
    """What results that have elements in common are views of, and by which steps; no arguments."""
    groups = overlapping(results).values()
    traced = {result: view_chain.trace(result) for group in groups for result in group}
    return {result: made for result, made in traced.items() if made[0].op == "call_function"}


def whole(result: Node, wholes: Mapping[Memory, Node]) -> Node:
    """The tensor that `result` is a view of, or itself."""
    memory, *bits = _memory(result)
    plain = wholes.get((memory, False, False))
    if plain is not None or not any(bits):
        return plain or result
    same = wholes.get(_memory(result), result)
    return same if same.meta["val"].dtype is result.meta["val"].dtype else result


def _computed(results: Sequence[Any]) -> list[Node]:
    return [r for r in results if isinstance(r, Node) and r.op == "call_function"]


def _is_whole(node: Node) -> bool:
    value = node.meta["val"]
    return value.nbytes == value.untyped_storage().nbytes() and memory_layout.is_dense(value)


def _source(part: Node) -> Node | None:
    """What takes all of the memory that `part` is in, among what `part` is computed from."""
    memory, *_ = _memory(part)
    node = part
    while node.op == "call_function" and node.all_input_nodes:
        node = node.all_input_nodes[0]
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):  # a list of parts
            continue
        if _memory(node)[0] != memory:
            return None
        plain = node.op == "call_function" and _memory(node) == (memory, False, False)
        if plain and _is_whole(node):
            return node
    return None
