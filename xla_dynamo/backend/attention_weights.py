"""Attention's gradient from the log-sum-exp of scores -> from the weights, where memory allows.

PyTorch's fused attention saves two arrays of the size of the queries for backward, which computes
the scores and their exponentials again: a product more than the gradient needs. `save_weights` lets
the forward give the exponentials too, if they take no more memory than queries, keys, values and
output do together (as many keys as four times the features, in self-attention): then what attention
saves is doubled at most. Importing this module registers the ops; lowering/rules/attention.py
lowers them.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from .aot import is_symbolic
from .fx_graph import call, drop_detached

aten = torch.ops.aten
ops = torch.ops.xla_dynamo
_FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
# Weights of 16 bits would be rounded, where the backward computes them in 32.
_DTYPES = (torch.float32, torch.float64)


def _factor(query: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


@torch.library.custom_op("xla_dynamo::attention", mutates_args=())
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention; exp(score - the row's largest), [b, h, t, s]; and 1 / their sum, [b, h, t, 1].

    Where a row has no key to attend to, all three are zero.
    """
    shared = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(shared, 1) for x in (key, value))
    scores = query @ key.mT * _factor(query, scale)
    if is_causal:
        scores = scores.masked_fill(scores.new_ones(scores.shape[-2:]).tril() == 0, -torch.inf)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if not mask.is_floating_point() else scores + mask
        )
    lowest = torch.finfo(scores.dtype).min
    weights = (scores - scores.amax(-1, keepdim=True).clamp(min=lowest)).exp()
    total = weights.sum(-1, keepdim=True)
    inverse = torch.where(total == 0, 0, 1 / total)
    return weights @ value * inverse, weights, inverse


@torch.library.custom_op("xla_dynamo::attention_backward", mutates_args=())
def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    weights: Tensor,
    inverse: Tensor,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by query, key and value."""
    heads, shared = key.shape[1], query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(shared, 1) for x in (key, value))
    weights = weights * inverse
    grad_scores = weights * (grad @ values.mT - (grad * out).sum(-1, keepdim=True))
    grad_scores = grad_scores * _factor(query, scale)
    by_key, by_value = (
        x.unflatten(1, (heads, shared)).sum(2) for x in (grad_scores.mT @ query, weights.mT @ grad)
    )
    return grad_scores @ keys, by_key, by_value


@attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows = query.shape[:-1]
    sizes = (value.shape[-1], key.shape[-2], 1)
    out, weights, inverse = (query.new_empty((*rows, size)) for size in sizes)
    return out, weights, inverse


@attention_backward.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


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
