"""Fuse what Dynamo makes of addcdiv and addcmul with a `value` to the op that the user called.

    x.addcdiv_(a, b, value=v)      ->  x.copy_(prims.fma(a / b, v, x))
    torch.addcdiv(x, a, b, value=v) ->  x + (a / b) * v

In 16 bits each of these ops rounds, where the op that was called rounds once. Three ops that a user
wrote are told apart from the second form by their source positions: each call of a source has its
own columns, but these three have those of one call. Where columns are unknown, they stay three ops.
"""

from __future__ import annotations

import collections
from typing import Any

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph.fx import calls, is_inexact
from xla_dynamo.backend.passes.contract import Context

_PRODUCTS: dict[object, Any] = {torch.div: torch.addcdiv, torch.mul: torch.addcmul}


def fuse_addcdiv(graph: Graph, context: Context) -> bool:
    """Rewrite Dynamo's graph in place."""
    positions = _by_source_position(graph)
    found = [node for node in calls(graph) if str(node.target) == "prims.fma.default"]
    changed = sum(map(_restore_in_place, found))
    for nodes in positions.values():
        triples = [nodes[i : i + 3] for i in range(0, len(nodes), 3)]
        if all(map(_is_addcdiv, triples)):
            for div, mul, add in triples:
                _replace(add, torch.addcdiv, (add.args[0], *div.args), mul.args[1], (mul, div))
                changed += 1
    return changed > 0


def _by_source_position(graph: Graph) -> dict[str, list[Node]]:
    """The calls that share one position in the source, in order, where columns are known."""
    found: dict[str, list[Node]] = collections.defaultdict(list)
    for node in graph.nodes:
        trace = node.stack_trace or ""
        marks = trace.rstrip().rpartition("\n")[2].strip()
        has_columns = marks and set(marks) <= {*"^~"}
        # Without a value addcdiv stays one op: a line `op(*args, **kwargs)` may have made both.
        if node.op.startswith("call") and has_columns and node.target is not torch.addcdiv:
            found[trace].append(node)
    return found


def _restore_in_place(fma: Node) -> bool:
    product, value, x = fma.args
    if not isinstance(product, Node) or product.target not in _PRODUCTS:
        return False
    same_call = product.stack_trace == fma.stack_trace and len(product.users) == 1
    if not same_call or product.kwargs or not isinstance(value, (int, float, complex)):
        return False
    _replace(fma, _PRODUCTS[product.target], (x, *product.args), value, (product,))
    return True


def _is_addcdiv(triple: list[Node]) -> bool:
    if [node.target for node in triple] != [torch.div, torch.mul, torch.add]:
        return False
    div, mul, add = triple
    chained = div.next is mul and mul.next is add and len(div.users) == len(mul.users) == 1
    if not chained or any(node.kwargs for node in triple):
        return False
    operands = (add.args[0], *div.args)
    return (
        mul.args[0] is div
        and add.args[1] is mul
        and isinstance(mul.args[1], (int, float, complex))
        # Integers are not rounded, and eager refuses them.
        and all(isinstance(x, Node) and is_inexact(x.meta.get("example_value")) for x in operands)
    )


def _replace(
    node: Node, target: Any, args: tuple[Any, ...], value: Any, parts: tuple[Node, ...]
) -> None:
    node.target, node.args, node.kwargs = target, args, {"value": value}
    for part in parts:
        node.graph.erase_node(part)
