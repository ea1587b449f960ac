"""Small questions and edits that several passes have for an FX graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from xla_dynamo.backend.graph import rng_keys


def placeholders(graph: Graph) -> list[Node]:
    """The arguments of `graph`, in order."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def results(graph: Graph) -> list[Any]:
    """What `graph` returns, as a flat list of nodes and constants."""
    return list(cast("tuple[Any, ...]", graph.output_node().args[0]))


def calls(graph: Graph) -> list[Node]:
    """The nodes of `graph` that compute something."""
    return [node for node in graph.nodes if node.op == "call_function"]


def is_view(node: Node) -> bool:
    """Whether `node` gives a view of its first argument, to its op's schema."""
    return gives_views(node.target) and isinstance(node.meta["val"], torch.Tensor)


def gives_views(target: Any) -> bool:
    """Whether what an op gives, a tensor or several, are views of its first argument."""
    arguments = target._schema.arguments if hasattr(target, "_schema") else ()
    alias = arguments[0].alias_info if arguments else None
    return alias is not None and not alias.is_write


def is_symbolic(value: Any) -> bool:
    """Whether a value of node.meta["val"] is a SymInt, SymFloat or SymBool."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def is_inexact(value: Any) -> bool:
    """Whether `value` is a tensor of floats or of complex numbers."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def copy(graph: Graph) -> Graph:
    """A copy of `graph`; nodes keep names and metadata."""
    new = Graph()
    new.output(new.graph_copy(graph, {}))
    return new


def call(graph: Graph, op: Any, *args: Any, **kwargs: Any) -> Node:
    """A new node of `graph`, with the value that PyTorch infers for it."""
    node = graph.call_function(op, args, kwargs)
    values, keywords = map_arg((args, kwargs), lambda operand: operand.meta["val"])
    node.meta["val"] = op(*values, **keywords)
    return node


def exchange_calls(gm: GraphModule, others: Mapping[object, Callable[..., Any]]) -> None:
    """Call others of the same arguments in `gm` and its subgraphs, in place."""
    for module in gm.modules():
        if not isinstance(module, GraphModule):
            continue
        found = [node for node in module.graph.nodes if node.target in others]
        for node in found:
            node.target = others[node.target]
        if found:
            module.recompile()


def drop_detached(graph: Graph, node: Node) -> None:
    """Have `node` itself used in the place of the detached copies of it that autograd saves."""
    for user in list(node.users):
        if user.target is torch.ops.aten.detach.default:
            drop_detached(graph, user)
            user.replace_all_uses_with(node)
            graph.erase_node(user)


def drop_unused(graph: Graph) -> None:
    """Erase what no result needs, random ops too; arguments stay."""
    graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))


def append_placeholder(graph: Graph, name: str, meta: Mapping[str, Any]) -> Node:
    """A new last argument of `graph`."""
    last = placeholders(graph)[-1:]
    anchor = last[0].next if last else next(iter(graph.nodes))
    with graph.inserting_before(anchor):
        placeholder = graph.placeholder(name)
    placeholder.meta = dict(meta)
    return placeholder


def lift_keys(graph: Graph) -> int:
    """Turn the nodes that make PRNG keys into trailing arguments; how many."""
    keys = [node for node in graph.nodes if node.target is rng_keys.new_key]
    for node in keys:
        node.replace_all_uses_with(append_placeholder(graph, "prng_key", node.meta))
        graph.erase_node(node)
    return len(keys)
