"""Keep long attention that drops weights one op on TPUs, where it is a kernel.

On the devices that AOTAutograd traces for, PyTorch takes it apart, and the weights and the mask of
dropout go through memory, from forward to backward too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Graph
from torch.nn import functional as F

from xla_dynamo.backend.decompositions.fused_attention import drops_in_kernel
from xla_dynamo.backend.graph.torch_private import is_transforming
from xla_dynamo.backend.ops.dropout_attention import dropout_attention
from xla_dynamo.backend.passes.contract import Context


def keep_attention_dropout(graph: Graph, context: Context) -> bool:
    """Exchange the calls of attention in Dynamo's graph."""
    chosen = context.target.attention
    if context.target.platform != "tpu" or chosen == "xla":
        return False
    found = [node for node in graph.nodes if node.target is F.scaled_dot_product_attention]
    for node in found:
        node.target, node.kwargs = attention, {**node.kwargs, "kernels": chosen}
    return bool(found)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    kernels: str = "auto",
) -> Tensor:
    """F.scaled_dot_product_attention; `kernels` is the option `attention`."""
    if dropout_p and not is_transforming():
        q, k, v = (_as_autocast(x) for x in (query, key, value))
        mask = None if attn_mask is None else _as_autocast(attn_mask)
        if drops_in_kernel(q, k, v, mask, dropout_p, enable_gqa, kernels):
            return dropout_attention(q, k, v, mask, dropout_p, is_causal, scale)[0]
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _as_autocast(x: Tensor) -> Tensor:
    """An operand in the dtype that autocast gives attention."""
    if x.dtype != torch.float32 or not torch.is_autocast_enabled(x.device.type):
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))
