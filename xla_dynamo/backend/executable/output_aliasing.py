"""For outputs that alias one storage in eager, choose the tensor to compute: their base.

The base is an output that spans the storage if there is one, else the common base of views that
overlap. Disjoint views get storages of their own, so that XLA need not keep the base; but where
they are all of it, in a part of a graph whose next part is a kernel, they are views of it.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from xla_dynamo.backend.graph import memory_layout, view_chain

# A storage, and the negative and conjugate bits of a tensor in it.
Storage = tuple[int, bool, bool]


def _storage(node: Node) -> Storage:
    """Equal for two aliases whose elements are the same values."""
    value = node.meta["val"]
    return value.untyped_storage()._cdata, value.is_neg(), value.is_conj()


def is_alias(node: Node, other: Node) -> bool:
    """Whether two nodes have one dtype and one storage, with the same values in it."""
    value = node.meta["val"]
    same = isinstance(value, torch.Tensor) and value.dtype is other.meta["val"].dtype
    return same and _storage(node) == _storage(other)


def bases(results: Sequence[Any], of_pieces: bool = False) -> dict[Storage, Node]:
    """By storage: the first result that spans it, or the base of results that overlap in it.

    of_pieces: or of results that are all of it together.
    """
    found: dict[Storage, Node] = {}
    for result in _computed(results):
        if _spans_storage(result):
            found.setdefault(_storage(result), result)
    spanned = {storage for storage, *_ in found}
    joined = overlapping(results) | (pieces(results) if of_pieces else {})
    for storage, views in joined.items():
        if storage not in spanned and (base := _common_base(views[0])) is not None:
            found[storage, False, False] = base
    return found


def overlapping(results: Sequence[Any]) -> dict[int, list[Node]]:
    """By storage: the results that alias it, where two have an element in common."""
    return {
        storage: group
        for storage, group in _aliases(results).items()
        if memory_layout.overlap([node.meta["val"] for node in group])
    }


def pieces(results: Sequence[Any]) -> dict[int, list[Node]]:
    """By storage: the results that fill it, where none has an element twice."""
    return {
        storage: group
        for storage, group in _aliases(results).items()
        if _fill([node.meta["val"] for node in group])
    }


def _fill(values: Sequence[torch.Tensor]) -> bool:
    repeats = any(memory_layout.repeats_elements(v.shape, v.stride()) for v in values)
    return not repeats and sum(v.nbytes for v in values) == values[0].untyped_storage().nbytes()


def _aliases(results: Sequence[Any]) -> dict[int, list[Node]]:
    """By storage: the results that alias it, if more than one does."""
    groups: dict[int, list[Node]] = collections.defaultdict(list)
    for result in dict.fromkeys(_computed(results)):
        groups[_storage(result)[0]].append(result)
    return {storage: group for storage, group in groups.items() if len(group) > 1}


def overlapping_views(results: Sequence[Any]) -> dict[Node, tuple[Node, view_chain.ViewOps]]:
    """The base and the view ops of each result that overlaps another, but for arguments' views."""
    groups = overlapping(results).values()
    traced = {result: view_chain.trace(result) for group in groups for result in group}
    return {result: found for result, found in traced.items() if found[0].op == "call_function"}


def base_of(result: Node, bases: Mapping[Storage, Node]) -> Node:
    """The tensor among `bases` that `result` is a view of, or `result` itself."""
    storage, *bits = _storage(result)
    plain = bases.get((storage, False, False))
    if plain is not None or not any(bits):
        return plain or result
    same = bases.get(_storage(result), result)
    return same if same.meta["val"].dtype is result.meta["val"].dtype else result


def _computed(results: Sequence[Any]) -> list[Node]:
    return [r for r in results if isinstance(r, Node) and r.op == "call_function"]


def _spans_storage(node: Node) -> bool:
    value = node.meta["val"]
    return value.nbytes == value.untyped_storage().nbytes() and memory_layout.is_dense(value)


def _common_base(view: Node) -> Node | None:
    """The tensor that spans the storage of `view`, among those that `view` is computed from."""
    storage, *_ = _storage(view)
    node = view
    while node.op == "call_function" and node.all_input_nodes:
        node = node.all_input_nodes[0]
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):  # a list of views
            continue
        if _storage(node)[0] != storage:
            return None
        is_plain = node.op == "call_function" and _storage(node) == (storage, False, False)
        if is_plain and _spans_storage(node):
            return node
    return None
