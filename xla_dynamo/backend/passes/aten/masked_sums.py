"""Elements picked by data -> static shapes, where what follows does not need their number.

The shape of `x[mask]` depends on data, which XLA cannot have. Often it does not matter, in
gradients above all: the value with which `index_fill` fills gets the sum over the distinct indices,
what `index_put` puts through a mask gets the gradient there, of a length that is known.

    sum(x[mask])                         -> sum(x, zero outside the mask)
    sum(index_select(x, d, _unique(i)))  -> sum(x, zero where no index points)
    x[mask], of static shape             -> x[nonzero_static(mask, size)]
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit
from xla_dynamo.backend.graph.fx import is_symbolic
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
Call = Callable[..., Node]
_SUMS = frozenset({aten.sum.default, aten.sum.dim_IntList})


@dataclass(frozen=True)
class _Selection:
    """`node` picks from `source`, along dimension `dim` of its result."""

    node: Node
    source: Node
    dim: int


def mask_sums(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, which may have symbolic shapes, in place."""
    changed = False
    for node in list(graph.nodes):
        if node.target is aten.index.Tensor:
            changed |= _masked(graph, node)
        elif node.target is aten.index_select.default:
            changed |= _distinct(graph, node)
    if changed:
        edit.drop_unused(graph)
    return changed


def _masked(graph: Graph, node: Node) -> bool:
    source, indices = node.args
    assert isinstance(source, Node)
    assert isinstance(indices, (list, tuple))
    present = [at for at, index in enumerate(indices) if index is not None]
    mask = indices[present[0]]
    if len(present) != 1 or not isinstance(mask, Node):
        return False
    value = mask.meta["val"]
    if value.dtype != torch.bool or value.dim() == 0:
        return False
    found = _Selection(node, source, present[0])
    size = node.meta["val"].shape[found.dim]
    size = size.node.maybe_as_int() if is_symbolic(size) else size
    call = partial(edit.call, graph, like=node)
    with graph.inserting_before(node):
        if _is_summed(found, value.dim()):
            node.replace_all_uses_with(_zero_outside_mask(call, found, mask))
        elif size is not None:
            node.replace_all_uses_with(_at_positions(call, found, mask, size))
        else:
            return False
    return True


def _distinct(graph: Graph, node: Node) -> bool:
    arguments: tuple[Any, ...] = node.args
    source, dim, chosen = arguments
    index = _made_distinct(chosen)
    rank = source.meta["val"].dim()
    if index is None or not _is_summed(_Selection(node, source, dim % max(1, rank))):
        return False
    with graph.inserting_before(node):
        call = partial(edit.call, graph, like=node)
        nowhere = call(aten.full_like.default, source, False, dtype=torch.bool)
        pointed = call(aten.index_fill.int_Scalar, nowhere, dim, index, True)
        node.replace_all_uses_with(_zero_outside(call, source, pointed))
    return True


def _made_distinct(chosen: Node) -> Any:
    """The indices whose distinct ones `chosen` holds, if it does."""
    unique: Any = chosen.args[0] if chosen.target is operator.getitem else chosen
    first = chosen is not unique and chosen.args[1] == 0
    return unique.args[0] if first and unique.target is aten._unique.default else None


def _is_summed(found: _Selection, extent: int = 1) -> bool:
    """Whether the dimension of unknown size, made of `extent` of the source, is summed away."""
    users = [user for user in found.node.users if not _only_checks(user)]
    return bool(users) and all(
        user.target in _SUMS and _sums(user, found, extent) for user in users
    )


def _only_checks(user: Node) -> bool:
    """Whether nothing comes of `user`, a size, but assertions."""
    if user.target is aten._assert_scalar.default:
        return True
    symbolic = is_symbolic(user.meta.get("val"))
    return symbolic and all(_only_checks(other) for other in user.users)


def _sums(user: Node, found: _Selection, extent: int) -> bool:
    dims: Any = user.args[1] if len(user.args) > 1 else ()
    if not dims:
        return True
    # A sum over several dimensions in their place would have other positions.
    rank = max(1, found.node.meta["val"].dim())
    return extent == 1 and found.dim in [dim % rank for dim in dims]


def _zero_outside_mask(call: Call, found: _Selection, mask: Node) -> Node:
    dims = found.source.meta["val"].dim() - found.dim - mask.meta["val"].dim()
    for _ in range(dims):
        mask = call(aten.unsqueeze.default, mask, -1)
    return _zero_outside(call, found.source, mask)


def _zero_outside(call: Call, source: Node, mask: Node) -> Node:
    outside = call(aten.logical_not.default, mask)
    return call(aten.masked_fill.Scalar, source, outside, 0)


def _at_positions(call: Call, found: _Selection, mask: Node, size: int) -> Node:
    positions = call(aten.nonzero_static.default, mask, size=size)
    columns = range(mask.meta["val"].dim())
    picked = [call(aten.select.int, positions, 1, column) for column in columns]
    return call(aten.index.Tensor, found.source, [*[None] * found.dim, *picked])
