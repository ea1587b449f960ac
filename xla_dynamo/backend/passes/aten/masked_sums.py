"""Give selections by a mask static shapes where the number of selected elements does not matter.

The shape of `x[mask]` depends on data, which XLA does not allow. Often it does not matter, above
all in gradients: the gradient by the value of `index_fill` is a sum over the distinct indices, and
the gradient by what `index_put` writes through a mask has a shape that is known.

    sum(x[mask])                         -> sum(x, zero outside the mask)
    sum(index_select(x, d, _unique(i)))  -> sum(x, zero where no index points)
    x[mask], of static shape             -> x[nonzero_static(mask, size)]
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit
from xla_dynamo.backend.graph.fx import is_symbolic, known_size
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
_SUMS = frozenset({aten.sum.default, aten.sum.dim_IntList})


def mask_sums(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, which may have symbolic shapes, in place."""
    changed = False
    for node in list(graph.nodes):
        if node.target is aten.index.Tensor:
            changed |= _rewrite_index(graph, node)
        elif node.target is aten.index_select.default:
            changed |= _rewrite_index_select(graph, node)
    if changed:
        edit.drop_unused(graph)
    return changed


def _rewrite_index(graph: Graph, node: Node) -> bool:
    arguments: tuple[Any, ...] = node.args
    source, indices = arguments
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    dim, mask = dims[0], indices[dims[0]]
    if len(dims) != 1 or not isinstance(mask, Node):
        return False
    value = mask.meta["val"]
    if value.dtype != torch.bool or value.dim() == 0:
        return False
    size = known_size(node.meta["val"].shape[dim])
    call = partial(edit.call, graph, like=node)
    with graph.inserting_before(node):
        if _is_summed(node, dim, value.dim()):
            for _ in range(source.meta["val"].dim() - dim - value.dim()):
                mask = call(aten.unsqueeze.default, mask, -1)
            outside = call(aten.logical_not.default, mask)
            new = call(aten.masked_fill.Scalar, source, outside, 0)
        elif size is not None:
            positions = call(aten.nonzero_static.default, mask, size=size)
            columns = range(value.dim())
            found = [call(aten.select.int, positions, 1, column) for column in columns]
            new = call(aten.index.Tensor, source, [*[None] * dim, *found])
        else:
            return False
    node.replace_all_uses_with(new)
    return True


def _rewrite_index_select(graph: Graph, node: Node) -> bool:
    arguments: tuple[Any, ...] = node.args
    source, dim, chosen = arguments
    index = _repeated_indices(chosen)
    rank = source.meta["val"].dim()
    if index is None or not _is_summed(node, dim % max(1, rank)):
        return False
    with graph.inserting_before(node):
        call = partial(edit.call, graph, like=node)
        nowhere = call(aten.full_like.default, source, False, dtype=torch.bool)
        pointed = call(aten.index_fill.int_Scalar, nowhere, dim, index, True)
        outside = call(aten.logical_not.default, pointed)
        node.replace_all_uses_with(call(aten.masked_fill.Scalar, source, outside, 0))
    return True


def _repeated_indices(chosen: Node) -> Any:
    """The operand of `_unique`, if `chosen` is its first result."""
    unique: Any = chosen.args[0] if chosen.target is operator.getitem else chosen
    is_first = chosen is not unique and chosen.args[1] == 0
    return unique.args[0] if is_first and unique.target is aten._unique.default else None


def _is_summed(node: Node, dim: int, rank: int = 1) -> bool:
    """Whether `dim`, selected from `rank` dimensions of the source, is summed away by every use."""
    users = [user for user in node.users if not _only_checks(user)]
    return bool(users) and all(
        user.target in _SUMS and _sums_over(user, node, dim, rank) for user in users
    )


def _only_checks(user: Node) -> bool:
    """Whether `user` is an assertion, or a size that only assertions use."""
    if user.target is aten._assert_scalar.default:
        return True
    symbolic = is_symbolic(user.meta.get("val"))
    return symbolic and all(_only_checks(other) for other in user.users)


def _sums_over(user: Node, node: Node, dim: int, rank: int) -> bool:
    dims: Any = user.args[1] if len(user.args) > 1 else ()
    if not dims:
        return True
    # The positions of dimensions after several that a mask selects from would change.
    own = max(1, node.meta["val"].dim())
    return rank == 1 and dim in [each % own for each in dims]
