"""Let an int argument that only selects (x[i], x[:, t:t + 4], a shift) stay an argument.

Dynamo makes such an int a symbol once it has changed. Sizes are specialized, so that each of its
values would have a program of its own, although no shape depends on it. Here ops that take it, or
what is computed of it, get 0-d tensors instead (decompositions/selected.py). A slice that is
returned stays a view: its offset in memory must be known.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Iterator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from xla_dynamo.backend.decompositions.selected import FORMS
from xla_dynamo.backend.graph import edit, fx, rng_keys
from xla_dynamo.backend.passes.contract import Context
from xla_dynamo.backend.passes.static.decompose_unsupported import replace
from xla_dynamo.backend.passes.static.specialize import takes_as_tensor

from .dynamic_slice import memory

aten = torch.ops.aten

_CPU = torch.device("cpu")
# Arithmetic of ints, and of 0-d tensors. A floor division rounds down in both.
_ARITHMETIC: dict[Any, Any] = {
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.neg: aten.neg.default,
    operator.mod: aten.remainder.Tensor,
    operator.floordiv: aten.floor_divide.default,
}


_SLICES = frozenset({aten.slice.Tensor, aten.slice_scatter.default, aten.slice_backward.default})
_RANGES = frozenset({aten.arange.start, aten.arange.start_step})


def keep_symbolic_indices(graph: Graph, context: Context) -> bool:
    """Rewrite what takes such ints, in place."""
    returned = set(map(memory, graph.output_node().all_input_nodes))
    taken = {node: _form_arguments(node) for node in graph.nodes if node.target in FORMS}
    chosen = {
        node: arguments
        for node, arguments in taken.items()
        if arguments is not None and not (fx.is_view(node) and memory(node) in returned)
    }
    sizes = _symbols_of_sizes(graph)
    kept = {node for node in fx.placeholders(graph) if _may_stay(node, sizes, chosen)}
    tensors: dict[Node, Node] = {}
    changed = False
    for node, arguments in chosen.items():
        ints = [leaf for leaf in pytree.tree_leaves(arguments) if _is_int(leaf)]
        if all(kept.issuperset(_roots(leaf)) for leaf in ints):
            known = {leaf: _as_tensor(graph, leaf, tensors) for leaf in ints}
            node.args = pytree.tree_map(lambda leaf, known=known: known.get(leaf, leaf), arguments)
            changed |= replace(graph, node, FORMS[node.target][1])
    if changed:
        edit.drop_unused(graph)
    return changed


def _is_int(leaf: Any) -> bool:
    return isinstance(leaf, Node) and isinstance(leaf.meta.get("val"), torch.SymInt)


def _form_arguments(node: Node) -> tuple[Any, ...] | None:
    """What the op's form takes; None if it selects by no symbol, or other symbols matter."""
    given: list[Any] = list(node.args if node.target in _RANGES else fx.arguments(node).values())
    position = FORMS[node.target][0]
    if not any(map(_is_int, pytree.tree_leaves(given[position]))):
        return None
    if node.target in _SLICES or node.target in _RANGES:
        step = given[position + 2] if len(given) > position + 2 else 1
        part = node if node.target in (aten.slice.Tensor, *_RANGES) else given[0]
        part = given[1] if node.target is aten.slice_scatter.default else part
        dim = given[position - 1] if position else 0
        length = fx.known_size(part.meta["val"].shape[dim])
        if not length or _is_int(step):
            return None
        span = length if node.target in _RANGES else (length - 1) * step + 1
        given[position + 1 :] = [span, step]
    others = pytree.tree_leaves((given[:position], given[position + 1 :], node.kwargs))
    tensors = [leaf.meta["val"] for leaf in others if isinstance(leaf, Node) and not _is_int(leaf)]
    if any(map(_is_int, others)) or not all(fx.known_size(n) for t in tensors for n in t.shape):
        return None
    return tuple(given)


def _symbols_of_sizes(graph: Graph) -> set[Any]:
    values = (node.meta.get("val") for node in graph.nodes)
    sizes = (size for value in values for size in getattr(value, "shape", ()))
    return {s for n in sizes if isinstance(n, torch.SymInt) for s in n.node.expr.free_symbols}


def _may_stay(node: Node, sizes: set[Any], chosen: Container[Node]) -> bool:
    """Whether an argument is an int of which only elements are selected, or data computed."""
    if not _is_int(node) or node.meta["val"].node.expr in sizes:
        return False
    return all(takes_as_tensor(user, node) or _selects(user, chosen) for user in node.users)


def _selects(user: Node, chosen: Container[Node]) -> bool:
    if user.target in _ARITHMETIC:
        return all(_selects(each, chosen) for each in user.users)
    return user in chosen


def _roots(node: Node) -> Iterator[Node | None]:
    """The arguments of which an int is computed; None for what no tensor computes."""
    if node.op == "placeholder":
        yield node
    elif node.target not in _ARITHMETIC:
        yield None
    for operand in node.all_input_nodes:
        yield from _roots(operand)


def _as_tensor(graph: Graph, node: Node, tensors: dict[Node, Node]) -> Node:
    """An int of the graph as a 0-d int64 tensor."""
    if node in tensors:
        return tensors[node]
    if node.op == "placeholder":
        first = next(each for each in graph.nodes if each.op != "placeholder")
        with graph.inserting_before(first), rng_keys.fake_mode(graph):
            made = graph.call_function(
                aten.scalar_tensor.default, (node,), {"dtype": torch.int64, "device": _CPU}
            )
            made.meta["val"] = torch.empty((), dtype=torch.int64, device="cpu")
    else:
        operands = [
            _as_tensor(graph, leaf, tensors)
            if isinstance(leaf, Node)
            else _constant(graph, leaf, node)
            for leaf in node.args
        ]
        with graph.inserting_before(node):
            made = edit.call(graph, _ARITHMETIC[node.target], *operands, like=node)
    tensors[node] = made
    return made


def _constant(graph: Graph, number: Any, like: Node) -> Node:
    with graph.inserting_before(like), rng_keys.fake_mode(graph):
        return edit.call(
            graph, aten.scalar_tensor.default, number, like=like, dtype=torch.int64, device=_CPU
        )
