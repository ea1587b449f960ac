"""Attention's gradient from the log-sum-exp of scores -> from the weights, where memory allows.

PyTorch's fused attention saves two arrays of the size of the queries for backward, which computes
the scores and their exponentials again: a product more than the gradient needs. `save_weights` lets
the forward give the exponentials too, if they take no more memory than queries, keys, values and
output do together (as many keys as four times the features, in self-attention): then what attention
saves is doubled at most. Importing this module registers the ops; lowering/rules/attention.py
lowers them.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from xla_dynamo.backend.graph.fx import call, drop_detached, is_symbolic

aten = torch.ops.aten
ops = torch.ops.xla_dynamo
_FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
# Weights of 16 bits would be rounded, where the backward computes them in 32.
_DTYPES = (torch.float32, torch.float64)


def save_weights(module: GraphModule) -> None:
    """Rewrite, in place, the attentions of a graph that holds their gradients as well."""
    graph = module.graph
    for node in graph.find_nodes(op="call_function", target=_FORWARD):
        logsumexp = next((user for user in node.users if user.args[1] == 1), None)
        if logsumexp is not None and _is_small(node):
            drop_detached(graph, logsumexp)
            users = list(logsumexp.users)
            if len(users) == 1 and _is_gradient(users[0], node):
                _rewrite(graph, node, logsumexp, users[0])
    module.recompile()


def _is_gradient(user: Node, forward: Node) -> bool:
    arguments: Any = user.args
    same = user.target is _BACKWARD and arguments[1:4] == forward.args[:3]
    same = same and arguments[6] == 0 == _argument(forward, 3, 0.0)
    same = same and arguments[7] == _argument(forward, 4, False)
    names = ("attn_mask", "scale")
    return bool(same and all(forward.kwargs.get(n) == user.kwargs.get(n) for n in names))


def _argument(node: Node, at: int, default: Any) -> Any:
    return node.args[at] if len(node.args) > at else default


def _is_small(forward: Node) -> bool:
    query, key, value = (operand.meta["val"] for operand in forward.args[:3])  # type: ignore[union-attr]
    if query.dtype not in _DTYPES or any(is_symbolic(n) for x in (query, key) for n in x.shape):
        return False
    weights = query.numel() // max(query.shape[-1], 1) * key.shape[-2]
    return weights <= 2 * query.numel() + key.numel() + value.numel()


def _rewrite(graph: Graph, forward: Node, logsumexp: Node, backward: Node) -> None:
    query, key, value = forward.args[:3]
    grad, *_, out = backward.args[:5]
    mask, scale = forward.kwargs.get("attn_mask"), forward.kwargs.get("scale")
    how = (mask, _argument(forward, 4, False), scale)
    with graph.inserting_before(forward):
        whole = call(graph, ops.attention.default, query, key, value, *how)
        saved = [call(graph, operator.getitem, whole, at) for at in (1, 2)]
    with graph.inserting_before(backward):
        operands = (grad, query, key, value, out, *saved, scale)
        gradients = call(graph, ops.attention_backward.default, *operands)
    # With the user's line, and what checkpointing says of saving the forward's results.
    for old, *made in ((forward, whole, *saved), (backward, gradients)):
        for new in made:
            new.meta = {**old.meta, "val": new.meta["val"]}
    forward.replace_all_uses_with(whole)
    backward.replace_all_uses_with(gradients)
    for node in (backward, logsumexp, forward):
        graph.erase_node(node)
