"""The fast paths of nn.TransformerEncoderLayer and nn.MultiheadAttention in eval mode.

PyTorch calls one op for a whole layer, which it has kernels for and no decomposition. A mask of
any dtype counts where it is not zero: there, nothing is attended to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .fused_attention import fused_attention, is_fused

aten = torch.ops.aten
_PADDING = 1  # the mask_type of (batch, key); else of (query, key), or all four dimensions


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """aten._transformer_encoder_layer_fwd, of (batch, time, features)."""

    def attend(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        out, _ = attention(
            x, x, x, embed_dim, num_heads, *weights, mask, need_weights=False, mask_type=mask_type
        )
        return out

    def feed(x: Tensor) -> Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = F.gelu(hidden) if use_gelu else F.relu(hidden)
        return F.linear(hidden, ffn_weight_2, ffn_bias_2)

    def added(x: Tensor, layer: Callable[[Tensor], Tensor], weight: Tensor, bias: Tensor) -> Tensor:
        if norm_first:
            return x + layer(F.layer_norm(x, (embed_dim,), weight, bias, eps))
        return F.layer_norm(x + layer(x), (embed_dim,), weight, bias, eps)

    x = added(src, attend, norm_weight_1, norm_bias_1)
    return added(x, feed, norm_weight_2, norm_bias_2)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """aten._native_multi_head_attention, of (batch, time, features); the weights, or an empty.

    A row that may attend to nothing is NaN, as the op's is; fused attention gives zeros.
    """

    if query is key is value:
        projected = F.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
        projected = tuple(F.linear(*each) for each in parts)
    q, k, v = (x.unflatten(-1, (num_head, -1)).transpose(1, 2) for x in projected)

    def projected_back(mixed: Tensor) -> Tensor:
        return F.linear(mixed.transpose(1, 2).flatten(2), proj_weight, proj_bias)

    if mask is None and not need_weights and is_fused(q, k, v, None, 0.0, grouped=False):
        mixed = fused_attention(q, k, v, None, is_causal=False, scale=None)
        return projected_back(mixed), query.new_empty(0)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(_for_heads(mask, mask_type) != 0, -torch.inf)
    weights = scores.softmax(-1)
    out = projected_back(weights @ v)
    if not need_weights:
        return out, query.new_empty(0)
    return out, weights.mean(1) if average_attn_weights else weights


def _for_heads(mask: Tensor, mask_type: int | None) -> Tensor:
    """A mask that broadcasts with (batch, head, query, key)."""
    if mask_type == _PADDING:
        return mask[:, None, None, :]
    return mask[None, None] if mask.dim() == 2 else mask


TRANSFORMER_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
    aten._native_multi_head_attention.default: attention,
}
