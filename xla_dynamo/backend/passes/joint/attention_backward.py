"""Save attention's unnormalised weights for backward, where memory allows.

PyTorch's fused attention saves the log-sum-exp of the scores, and its backward recomputes the
scores and their exponentials, which takes one more matrix product. Here forward also returns the
exponentials if they take no more memory than queries, keys, values and output together (in
self-attention: up to four times as many keys as features). Attention then saves at most twice as
much.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import Graph, Node

from xla_dynamo.backend.graph.edit import call, drop_detached, substitute
from xla_dynamo.backend.graph.fx import arguments, is_symbolic
from xla_dynamo.backend.lowering import host_kernels
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
ops = torch.ops.xla_dynamo
_FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
# 16-bit weights would be rounded; the backward of 16-bit attention computes them in float32.
_DTYPES = (torch.float32, torch.float64)


def save_attention_weights(graph: Graph, context: Context) -> bool:
    """Rewrite, in place, each attention whose gradient is in `graph`, too."""
    changed = False
    if context.target.attention == "kernel":  # it computes them again
        return False
    for node in graph.find_nodes(op="call_function", target=_FORWARD):
        logsumexp = next((user for user in node.users if user.args[1] == 1), None)
        if logsumexp is not None and _is_small(node):
            drop_detached(graph, logsumexp)
            users = list(logsumexp.users)
            if len(users) == 1 and _is_gradient(users[0], node) and _is_xlas(users[0], context):
                _rewrite(graph, node, logsumexp, users[0])
                changed = True
    return changed


def _is_gradient(user: Node, forward: Node) -> bool:
    if user.target is not _BACKWARD:
        return False
    given, taken = arguments(user), arguments(forward)
    names = ("query", "key", "value", "dropout_p", "is_causal", "attn_mask", "scale")
    return given["dropout_p"] == 0 and all(given[name] == taken[name] for name in names)


def _is_xlas(backward: Node, context: Context) -> bool:
    """Whether no kernel of PyTorch's takes less time, which saves nothing else."""
    return not host_kernels.is_worth_leaving_for(backward, context.target)


def _is_small(forward: Node) -> bool:
    query, key, value = (operand.meta["val"] for operand in forward.args[:3])  # type: ignore[union-attr]
    if query.dtype not in _DTYPES or any(is_symbolic(n) for x in (query, key) for n in x.shape):
        return False
    weights = query.numel() // max(query.shape[-1], 1) * key.shape[-2]
    return weights <= 2 * query.numel() + key.numel() + value.numel()


def _rewrite(graph: Graph, forward: Node, logsumexp: Node, backward: Node) -> None:
    query, key, value = forward.args[:3]
    grad, *_, out = backward.args[:5]
    taken = arguments(forward)
    how = [taken[name] for name in ("attn_mask", "is_causal", "scale")]
    with graph.inserting_before(forward):
        results = call(graph, ops.attention.default, query, key, value, *how, like=forward)
        saved = [call(graph, operator.getitem, results, at, like=forward) for at in (1, 2)]
    with graph.inserting_before(backward):
        operands = (grad, query, key, value, out, *saved, taken["scale"])
        gradients = call(graph, ops.attention_backward.default, *operands, like=backward)
    substitute(backward, gradients)
    graph.erase_node(logsumexp)
    substitute(forward, results)
