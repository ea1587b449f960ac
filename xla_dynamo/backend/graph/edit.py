"""Edits of FX graphs that keep the metadata of the nodes they replace.

Every node of our graphs has `meta["val"]`, the fake tensor that PyTorch infers for it. A node that
a pass makes is made `like` another one and takes over the rest of its metadata: the user's line
(stack_trace, nn_module_stack), what its errors name (number, state), and what autograd's
partitioner needs (recompute, partitioner_tag, seq_nr).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from .fx import placeholders

# Another tensor of the same values. What autograd saves is detached; from torch 2.15 on, an alias.
IDENTITIES = frozenset({torch.ops.aten.alias.default, torch.ops.aten.detach.default})

# Metadata that belongs to one node and is not inherited.
_OWN = frozenset(
    {
        "val",
        "tensor_meta",
        "example_value",
        "unbacked_bindings",
        "eager_input_vals",
        "original_aten",
        "desc",
        "argument",
        "unresolved",
        "hint",
    }
)


def inherited(like: Node) -> dict[str, Any]:
    """The metadata of `like` that a node made from it shares."""
    return {key: value for key, value in like.meta.items() if key not in _OWN}


def insert(
    graph: Graph,
    op: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    like: Node,
    value: Any,
) -> Node:
    """A new node of `graph` whose value is known.

    Where `like` has no line (PyTorch's own modules have none), that of an operand will do.
    """
    node = graph.call_function(op, tuple(args), dict(kwargs))
    node.meta = {**inherited(like), "val": value}
    lines = (each.meta.get("stack_trace") for each in node.all_input_nodes)
    if "stack_trace" not in node.meta and (line := next(filter(None, lines), None)):
        node.meta["stack_trace"] = line
    return node


def call(graph: Graph, op: Any, *args: Any, like: Node, **kwargs: Any) -> Node:
    """A new node of `graph`, with the value that PyTorch infers for it."""
    values, keywords = map_arg((args, kwargs), lambda operand: operand.meta["val"])
    return insert(graph, op, args, kwargs, like=like, value=op(*values, **keywords))


def substitute(node: Node, new: Node) -> None:
    """Use `new` in place of `node`, which is erased."""
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)


def substitute_made(node: Node, new: Node) -> None:
    """Use `new`, which was made for it, in place of `node`: it keeps the strides of its value."""
    new.meta["val"] = node.meta["val"]
    substitute(node, new)


def exchange_targets(graph: Graph, others: Mapping[object, Callable[..., Any]]) -> bool:
    """Exchange the targets of calls, which keep their arguments; whether any was exchanged."""
    found = [node for node in graph.nodes if node.target in others]
    for node in found:
        node.target = others[node.target]
    return bool(found)


def drop_detached(graph: Graph, node: Node) -> None:
    """Use `node` in place of the detached copies of it that autograd saves."""
    for user in list(node.users):
        if user.target in IDENTITIES:
            drop_detached(graph, user)
            substitute(user, node)


def drop_unused(graph: Graph) -> None:
    """Erase nodes that no result needs, also random ops; placeholders stay."""
    graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))


def append_placeholder(graph: Graph, name: str, meta: Mapping[str, Any]) -> Node:
    """A new last argument of `graph`."""
    last = placeholders(graph)[-1:]
    anchor = last[0].next if last else next(iter(graph.nodes))
    with graph.inserting_before(anchor):
        placeholder = graph.placeholder(name)
    placeholder.meta = dict(meta)
    return placeholder


def attribute(module: GraphModule, node: Node) -> Any:
    """The value of a get_attr node of `module`."""
    value: Any = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value
