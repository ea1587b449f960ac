"""F.scaled_dot_product_attention as one op, with the gradient that PyTorch has for it.

PyTorch takes attention apart on devices that it does not know, and saves the scores for backward.
On a CPU it calls a fused op, under conditions (ATen, native/transformers/sdp_utils_cpp.cpp); where
they hold, the same op is recorded here, and torch.compile's passes apply to it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from xla_dynamo.compat.values import torch_private

from .composites import is_traced, unreached

aten = torch.ops.aten


def register_attention(library: torch.library.Library, autograd: torch.library.Library) -> None:
    """Register the kernels for dispatch keys XLA and AutogradXLA."""
    library.impl("scaled_dot_product_attention", unreached)
    autograd.impl("scaled_dot_product_attention", attention)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """aten.scaled_dot_product_attention of arrays [batch, heads, length, features]."""
    if is_traced(query) or not _is_fused(query, key, value, attn_mask, dropout_p, enable_gqa):
        return aten.scaled_dot_product_attention.default._op_dk(
            torch_private.Key.CompositeImplicitAutograd,
            query,
            key,
            value,
            attn_mask,
            dropout_p,
            is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        zeros = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = zeros.masked_fill(attn_mask.logical_not(), -torch.inf)
    return aten._scaled_dot_product_flash_attention_for_cpu.default(
        query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale
    )[0]


def _is_fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, grouped: bool
) -> bool:
    if not torch.backends.cuda.flash_sdp_enabled():  # torch.nn.attention.sdpa_kernel asks for parts
        return False
    if dropout_p != 0 or any(x.dim() != 4 or 0 in x.shape for x in (query, key, value)):
        return False
    if mask is not None and (mask.requires_grad or mask.dim() not in (2, 4)):
        return False
    batch, heads, _, features = query.shape
    shared = heads % key.shape[1] == 0 if grouped else heads == key.shape[1]
    same = key.shape[0] == batch and key.shape[3] == features and value.shape == key.shape
    return shared and same and query.dtype.is_floating_point
