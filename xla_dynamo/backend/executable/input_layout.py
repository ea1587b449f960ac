"""Arguments that are dense in another order than row-major (channels_last, a transpose) go in as
they lie: the program takes the array of their memory, and transposes it, which costs XLA nothing
where it can choose layouts. Else a call would copy them.

What another program has computed, as forward does for backward, is row-major, whatever was traced:
the first call tells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx, memory_layout

aten = torch.ops.aten
_ROW_MAJOR = "row_major"  # of an argument's node
Order = tuple[int, ...]  # a tensor's dimensions, from the outermost in memory to the innermost


def note_row_major(graph: Graph, arguments: Sequence[Any]) -> None:
    """Note which arguments are row-major in a call."""
    for node, argument in zip(fx.placeholders(graph), arguments, strict=False):
        if isinstance(argument, torch.Tensor) and argument.layout is torch.strided:
            node.meta[_ROW_MAJOR] = argument.is_contiguous()


def take_as_they_lie(graph: Graph, others: Collection[int]) -> dict[int, Order]:
    """Let `graph` take CPU tensors in the order of their memory; by position, that order.

    others: the arguments that stay as they are.
    """
    placeholders = fx.placeholders(graph)
    orders = {
        i: order
        for i, node in enumerate(placeholders)
        if i not in others
        and not node.meta.get(_ROW_MAJOR)
        and (order := _order(node.meta["val"])) is not None
    }
    for i, order in orders.items():
        _permute(graph, placeholders[i], order, placeholders[-1])
    return orders


def _order(value: object) -> Order | None:
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or not value.numel():
        return None
    return None if value.is_conj() or value.is_neg() else memory_layout.physical_order(value)


def _permute(graph: Graph, node: Node, order: Order, last: Node) -> None:
    logical = node.meta["val"]
    node.meta["val"] = logical.permute(order)
    back = sorted(range(len(order)), key=order.__getitem__)
    with graph.inserting_after(last):
        new = edit.insert(graph, aten.permute.default, (node, back), {}, like=node, value=logical)
    node.replace_all_uses_with(new, lambda user: user is not new)
