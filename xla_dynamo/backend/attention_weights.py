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
from .fx_graph import call

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
    for node in graph.find_nodes(op="call_function", target=_BACKWARD):
        forward = _forward_of(node)
        if forward is not None and _is_small(forward):
            _rewrite(graph, forward, node)
    module.recompile()


def _forward_of(backward: Node) -> Node | None:
    """The forward that gave what `backward` takes, if nobody else needs its log-sum-exp."""
    arguments: Any = backward.args
    _, query, key, value, _, logsumexp, dropout, is_causal = arguments
    item = _undetached(logsumexp)
    forward: Any = item.args[0] if item.args else None
    if not isinstance(forward, Node) or forward.target is not _FORWARD:
        return None
    same = forward.args[:3] == (query, key, value) and dropout == 0
    same = same and _argument(forward, 4, False) == is_causal and _argument(forward, 3, 0.0) == 0
    for name in ("attn_mask", "scale"):
        same = same and forward.kwargs.get(name) == backward.kwargs.get(name)
    return forward if same and _users(item) == [backward] else None


def _argument(node: Node, at: int, default: Any) -> Any:
    return node.args[at] if len(node.args) > at else default


def _undetached(node: Node) -> Node:
    while node.target is aten.detach.default:
        source: Any = node.args[0]
        node = source
    return node


def _users(node: Node) -> list[Node]:
    """Who uses `node`, or a detached copy of it."""
    found: list[Node] = []
    for user in node.users:
        found += _users(user) if user.target is aten.detach.default else [user]
    return found


def _is_small(forward: Node) -> bool:
    query, key, value = (operand.meta["val"] for operand in forward.args[:3])  # type: ignore[union-attr]
    if query.dtype not in _DTYPES or any(is_symbolic(n) for x in (query, key) for n in x.shape):
        return False
    weights = query.numel() // max(query.shape[-1], 1) * key.shape[-2]
    return weights <= 2 * query.numel() + key.numel() + value.numel()


def _rewrite(graph: Graph, forward: Node, backward: Node) -> None:
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
    logsumexp: Any = backward.args[5]
    for node in (backward, forward):
        graph.erase_node(node)
    while not logsumexp.users:
        done, logsumexp = logsumexp, logsumexp.args[0]
        graph.erase_node(done)
