"""What Dynamo makes of addcdiv and addcmul with a `value` -> the one op that the user called.

    x.addcdiv_(a, b, value=v)      ->  x.copy_(prims.fma(a / b, v, x))
    torch.addcdiv(x, a, b, value=v) ->  x + (a / b) * v

In 16 bits each of these ops rounds, the op that was called rounds once. Three ops that a user wrote
are told from the second form by their places: every call in a source has columns of its own, but
these three have the place of one call. Where no columns are known, they stay three.
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
    fma = getattr(torch.ops.prims, "fma", None)  # torch 2.9 has none
    fused = None if fma is None else fma.default
    by_place = _by_place(graph)
    found = [node for node in calls(graph) if fused is not None and node.target is fused]
    changed = sum(map(_restore_in_place, found))
    for place in by_place.values():
        triples = [place[i : i + 3] for i in range(0, len(place), 3)]
        if all(map(_is_addcdiv, triples)):
            for div, mul, add in triples:
                _replace(add, torch.addcdiv, (add.args[0], *div.args), mul.args[1], (mul, div))
                changed += 1
    return changed > 0


def _by_place(graph: Graph) -> dict[str, list[Node]]:
    """The calls whose place has columns: calls that share one place in the source, in order."""
    found: dict[str, list[Node]] = collections.defaultdict(list)
    for node in graph.nodes:
        trace = node.stack_trace or ""
        marks = trace.rstrip().rpartition("\n")[2].strip()
        named = marks and set(marks) <= {*"^~"}
        # A call without a value is one op: `op(*args, **kwargs)` may have been both.
        if node.op.startswith("call") and named and node.target is not torch.addcdiv:
            found[trace].append(node)
    return found


def _restore_in_place(fma: Node) -> bool:
    product, value, x = fma.args
    if not isinstance(product, Node) or product.target not in _PRODUCTS:
        return False
    own = product.stack_trace == fma.stack_trace and len(product.users) == 1 and not product.kwargs
    if not own or not isinstance(value, (int, float, complex)):
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
        and all(isinstance(operand, Node) and _is_inexact(operand) for operand in operands)
    )


def _is_inexact(node: Node) -> bool:
    """Integers are no matter of rounding, and eager refuses them."""
    return is_inexact(node.meta.get("example_value"))


def _replace(
    node: Node, target: Any, args: tuple[Any, ...], value: Any, parts: tuple[Node, ...]
) -> None:
    node.target, node.args, node.kwargs = target, args, {"value": value}
    for part in parts:
        node.graph.erase_node(part)
