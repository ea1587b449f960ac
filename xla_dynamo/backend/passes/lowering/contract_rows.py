"""On accelerators, the gradient of a weight as one contraction over batch and time.

PyTorch flattens both operands to rows, and multiplies the transpose of one by the other. Nothing
has to be flattened, and XLA is free to choose layouts, as in `unflatten_matmul`: attention and its
projections move a sixth fewer bytes. What is computed in rows, as a loss is, stays in rows. The
values are the same.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.edit import call, drop_unused, insert, substitute
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten


def contract_rows(graph: Graph, context: Context) -> bool:
    """Rewrite `graph`, with static shapes, in place."""
    if context.target.platform == "cpu":
        return False
    changed = False
    for node in graph.find_nodes(op="call_function", target=aten.mm.default):
        transposed, right = node.args
        both = fx.transpose_of(transposed), right
        rows = [x for x in both if isinstance(x, Node) and x.target is aten.view.default]
        lead = next((lead for x in rows if (lead := _lead(x))), [])
        if len(rows) == 2 and lead and _value(node).is_floating_point():
            with graph.inserting_before(node):
                operands = [_with_lead(graph, x, lead) for x in rows]
                op = torch.ops.xla_dynamo.rows_product.default
                substitute(node, call(graph, op, *operands, like=node))
            changed = True
    if changed:
        drop_unused(graph)
    return changed


def _lead(rows: Node) -> list[int]:
    """The dimensions that were flattened to `rows`, if only they were."""
    shape, flat = list(_value(rows.all_input_nodes[0]).shape), _value(rows).shape
    return shape[:-1] if len(shape) > 2 and shape[-1] == flat[-1] else []


def _with_lead(graph: Graph, rows: Node, lead: list[int]) -> Node:
    """`rows` as they were before they were flattened."""
    source = rows.all_input_nodes[0]
    shape = [*lead, _value(rows).shape[-1]]
    if list(_value(source).shape) == shape:
        return source
    value = _value(rows).new_empty(shape)
    return insert(graph, aten.view.default, (source, shape), {}, like=rows, value=value)


def _value(node: Node) -> torch.Tensor:
    return node.meta["val"]
