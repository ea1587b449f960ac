"""Attention as the one op that it is on a CPU, on every device.

PyTorch chooses a fused op by device: one for CPUs, several for GPUs, and on devices that it does
not know it takes attention apart and saves the scores. The CPU's is what rules and passes know.
With dropout PyTorch takes it apart on CPUs, too; on a TPU it is one op of ours where it is long.
"""

from __future__ import annotations

import torch
from torch import Tensor

from xla_dynamo.backend.ops.attention import KERNEL_FEATURES, KERNEL_LENGTH
from xla_dynamo.backend.ops.dropout_attention import LONGEST

aten = torch.ops.aten


def is_fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float, grouped: bool
) -> bool:
    """Whether PyTorch calls the fused op on a CPU (ATen, transformers/sdp_utils_cpp.cpp)."""
    return dropout_p == 0 and _fits(query, key, value, mask, grouped)


def _fits(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, grouped: bool) -> bool:
    if not torch.backends.cuda.flash_sdp_enabled():  # torch.nn.attention.sdpa_kernel asks for parts
        return False
    if any(x.dim() != 4 or 0 in x.shape for x in (query, key, value)):
        return False
    if mask is not None and (mask.requires_grad or mask.dim() not in (2, 4)):
        return False
    batch, heads, _, features = query.shape
    shared = heads % key.shape[1] == 0 if grouped else heads == key.shape[1]
    same = key.shape[0] == batch and key.shape[3] == features and value.shape == key.shape
    return shared and same and query.dtype.is_floating_point


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    """Attention of arrays [batch, heads, length, features], where `is_fused`."""
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        zeros = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = zeros.masked_fill(attn_mask.logical_not(), -torch.inf)
    return aten._scaled_dot_product_flash_attention_for_cpu.default(
        query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale
    )[0]


def drops_in_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    grouped: bool,
    chosen: str,
) -> bool:
    """Whether attention that drops weights is one op on a TPU; sizes may be symbols.

    chosen: the option `attention`.
    """
    lengths = [n for n in (query.shape[-2], key.shape[-2]) if isinstance(n, int)]
    long = chosen == "kernel" or all(n >= KERNEL_LENGTH for n in lengths)
    return (
        0 < dropout_p < 1
        and chosen != "xla"
        and long
        and all(n <= LONGEST for n in lengths)
        and query.dtype in (torch.float32, torch.bfloat16)
        and query.dtype == key.dtype == value.dtype
        and query.shape[-1] in KERNEL_FEATURES
        and _fits(query, key, value, mask, grouped)
    )
