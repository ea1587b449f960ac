"""What a node of a functional FX graph computes: its op, its operands and its results."""

from __future__ import annotations

import operator
from typing import Any

from torch.fx import Node
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import rng_keys


def is_op(node: Node) -> bool:
    """Whether `node` computes something, other than to pick one of several results."""
    return node.op == "call_function" and node.target is not operator.getitem


def is_drawn(node: Node) -> bool:
    """Whether it is a random op, with a PRNG key threaded through it."""
    return node.target is rng_keys.call


def op_of(node: Node) -> Any:
    """The aten op of a node, also where a PRNG key was threaded through it."""
    return node.args[0] if is_drawn(node) else node.target


def tensor_operands(node: Node) -> list[Node]:
    """The tensor arguments of `node`, in the order in which its body takes them."""
    leaves = pytree.tree_leaves((node.args, node.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, Node)]


def output_values(node: Node) -> list[Any]:
    """The fake outputs of `node` as a flat list; None for an output that is undefined."""
    value = node.meta["val"]
    return list(value) if isinstance(value, (tuple, list)) else [value]


def arguments(node: Node) -> tuple[list[Any], pytree.TreeSpec]:
    """The arguments, flat; a random op's without its index."""
    args = node.args
    if is_drawn(node):
        args = args[0], *args[2:]
    return pytree.tree_flatten((args, node.kwargs))
