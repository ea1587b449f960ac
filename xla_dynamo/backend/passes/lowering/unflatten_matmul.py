"""Multiply and sum tensors as they are, instead of flattened.

PyTorch multiplies matrices: a linear layer flattens [batch, time, features] to [rows, features],
multiplies, and unflattens the rows; its bias gets the sum of the flattened gradient; attention
flattens batch and heads. XLA multiplies tensors of any rank, and where nothing is flattened it is
free to choose layouts through the layer: a GPT on a TPU then moves 6 % fewer bytes, in 15 % less
temporary memory. The values are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import call, drop_unused, insert
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten

_VIEWS = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten.reshape.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.unsqueeze.default,
    }
)
_JOINED = _VIEWS | {aten.expand.default, aten.clone.default}


def unflatten_matmul(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, with static shapes, in place."""
    changed = _join_views(graph)
    for node in list(graph.nodes):
        rewrite = _REWRITES.get(node.target)
        if rewrite is not None:
            changed |= rewrite(graph, node, context.target.platform != "cpu")
    drop_unused(graph)
    return _join_views(graph) or changed


def _join_views(graph: Graph) -> bool:
    """Drop copies and views that change nothing; make a view of a view one view.

    A view of a permuted tensor is a view of it permuted without dimensions of one.
    """
    changed = False
    for node in list(graph.nodes):
        if node.target not in _JOINED:
            continue
        source = _source(node)
        if node.target in _VIEWS:
            base = source
            if source.target in _VIEWS:
                base = _source(source)
            elif source.target is aten.permute.default:
                base = _without_ones(graph, source)
            if base is not source:
                source, changed = base, True
                node.target, node.args = aten.view.default, (source, list(_value(node).shape))
        if _value(source).shape == _value(node).shape:
            node.replace_all_uses_with(source)
            changed = True
    drop_unused(graph)
    return changed


def _without_ones(graph: Graph, permuted: Node) -> Node:
    """A permuted tensor without its dimensions of one, which keep XLA from joining transposes."""
    arguments: tuple[Any, ...] = permuted.args
    source, order = arguments
    sizes = _value(source).shape
    kept = [dim for dim, size in enumerate(sizes) if size != 1]
    if len(kept) == len(sizes):
        return permuted
    order = [dim % len(sizes) for dim in order]
    with graph.inserting_before(permuted):
        squeezed = _view(graph, source, [sizes[dim] for dim in kept])
        new_order = [kept.index(dim) for dim in order if dim in kept]
        if new_order == sorted(new_order):
            return squeezed
        return call(graph, aten.permute.default, squeezed, new_order, like=permuted)


def _view(graph: Graph, source: Node, shape: list[int]) -> Node:
    """A view of `source`, or what it is itself a view of."""
    source = _source(source) if source.target in _VIEWS else source
    if list(_value(source).shape) == shape:
        return source
    value = _value(source).new_empty(shape)
    return insert(graph, aten.view.default, (source, shape), {}, like=source, value=value)


def _product(graph: Graph, node: Node, by_heads: bool) -> bool:
    rows, matrix = node.args
    tensor = _unflattened_rows(graph, rows, node, by_heads)
    if tensor is None or not isinstance(matrix, Node):
        return False
    return _replace(graph, node, aten.matmul.default, tensor, matrix)


def _linear(graph: Graph, node: Node, by_heads: bool) -> bool:
    bias, rows, matrix = node.args
    if node.kwargs or not isinstance(matrix, Node) or not isinstance(bias, Node):
        return False
    tensor = _unflattened_rows(graph, rows, node, by_heads)
    if tensor is None or _value(bias).dim() != 1:
        return False
    with graph.inserting_before(node):
        weight = _transposed(graph, matrix)
    return _replace(graph, node, aten.linear.default, tensor, weight, bias)


def _unflattened_rows(graph: Graph, rows: object, product: Node, by_heads: bool) -> Node | None:
    """The flattened tensor that `rows` is, in the dimensions in which `product` is used.

    None where the product is used in rows, as by a loss. With `by_heads`, also where its columns
    are split at once, as those of attention's queries are.
    """
    if not isinstance(rows, Node) or rows.target not in _VIEWS or not _is_float(rows):
        return None
    columns = _value(product).shape[-1]
    for user in product.users:
        shape = list(_value(user).shape) if user.target in _VIEWS else []
        lead = shape[:-1] if shape[-1:] == [columns] else []
        if by_heads and not lead:
            lead = _leading(shape, len(_value(rows)))
        if len(lead) > 1:
            with graph.inserting_before(product):
                return _view(graph, rows, [*lead, _value(rows).shape[-1]])
    return None


def _leading(shape: list[int], rows: int) -> list[int]:
    """The first dimensions, which hold `rows` together; none if none do."""
    for count in range(len(shape)):
        if math.prod(shape[:count]) == rows:
            return shape[:count]
    return []


def _transposed(graph: Graph, matrix: Node) -> Node:
    return fx.transpose_of(matrix) or call(graph, aten.t.default, matrix, like=matrix)


def _batched_product(graph: Graph, node: Node, by_heads: bool) -> bool:
    with graph.inserting_before(node):
        left, right = (_batch_of_matrices(graph, operand) for operand in node.args)
    if left is None or right is None or _value(left).shape[:-2] != _value(right).shape[:-2]:
        return False
    return _replace(graph, node, aten.matmul.default, left, right)


def _batch_of_matrices(graph: Graph, node: object) -> Node | None:
    """The tensor whose flattened batch of matrices `node` is, transposed or not, or None."""
    if not isinstance(node, Node):
        return None
    swapped = (node.target is aten.permute.default and node.args[1] == [0, 2, 1]) or (
        node.target is aten.transpose.int and {d % 3 for d in node.args[1:]} == {1, 2}  # type: ignore[operator]
    )
    flat = node.args[0] if swapped else node
    tensor = _unflattened(flat, keep=2)
    if tensor is None or not swapped:
        return tensor
    return call(graph, aten.transpose.int, tensor, -2, -1, like=node)


def _sum(graph: Graph, node: Node, by_heads: bool) -> bool:
    rows, dims = node.args[:2]
    tensor = _unflattened(rows, keep=1)
    if tensor is None or dims != [0]:
        return False
    leading = list(range(_value(tensor).dim() - 1))
    return _replace(graph, node, aten.sum.dim_IntList, tensor, leading, **node.kwargs)


def _unflattened(node: object, keep: int) -> Node | None:
    """The tensor that `node` is with all but its last `keep` dimensions flattened, or None."""
    if not isinstance(node, Node) or node.target not in _VIEWS or not _is_float(node):
        return None
    tensor = _source(node)
    value, flat = _value(tensor), _value(node)
    flattens = value.dim() > keep + 1 == flat.dim() and value.shape[-keep:] == flat.shape[-keep:]
    return tensor if flattens else None


def _is_float(node: Node) -> bool:
    return _value(node).is_floating_point() and _value(node).numel() > 0


def _replace(graph: Graph, node: Node, op: Any, *args: Any, **kwargs: Any) -> bool:
    """Use a view of `op(*args, **kwargs)` in place of `node`."""
    with graph.inserting_before(node):
        new = call(graph, op, *args, like=node, **kwargs)
        flat = list(_value(node).shape)
        view = insert(graph, aten.view.default, (new, flat), {}, like=node, value=_value(node))
    node.replace_all_uses_with(view)
    return True


def _source(view: Node) -> Node:
    source = view.args[0]
    assert isinstance(source, Node)
    return source


def _value(node: Node) -> torch.Tensor:
    return node.meta["val"]


_REWRITES: Mapping[Any, Callable[[Graph, Node, bool], bool]] = {
    aten.mm.default: _product,
    aten.addmm.default: _linear,
    aten.bmm.default: _batched_product,
    aten.sum.dim_IntList: _sum,
}
