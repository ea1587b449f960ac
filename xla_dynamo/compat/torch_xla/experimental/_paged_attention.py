"""Attention over keys and values that are kept in pages, as torch_xla.experimental.custom_kernel.

Kernels on TPUs, where they fit and nothing asks for gradients; else products of gathered pages.
"""

from __future__ import annotations

import torch

from xla_dynamo.backend.ops import paged_attention as paged
from xla_dynamo.backend.ops.paged_attention import softmax as softmax

ops = torch.ops.xla_dynamo
_MEGACORE = (None, "kv_head", "batch")


def paged_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    lengths: torch.Tensor,
    page_indices: torch.Tensor,
    pages_per_compute_block: int,
    megacore_mode: str | None = None,
    attn_logits_soft_cap: float | None = None,
) -> torch.Tensor:
    """Attention of one query for each sequence over keys and values kept in pages.

    q: (batch, heads, width); pages: (kv heads, pages, page size, width); page_indices: (batch, n),
    the pages of each sequence in order; lengths: (batch,). Scores are not scaled.
    """
    if megacore_mode not in _MEGACORE:
        raise ValueError(f"megacore_mode must be one of {_MEGACORE}, got {megacore_mode!r}")
    given = q, k_pages, v_pages, lengths, page_indices
    if _needs_gradients(q, k_pages, v_pages):
        return paged.decode_products(*given, attn_logits_soft_cap)
    how = pages_per_compute_block, megacore_mode, attn_logits_soft_cap
    return ops.paged_attention(*given, *how)


def multi_queries_paged_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    lengths: torch.Tensor,
    page_indices: torch.Tensor,
    effective_q_lens: torch.Tensor,
    num_kv_pages_per_compute_block: int,
    num_queries_per_compute_block: int,
    use_kernel: bool = True,
    attn_logits_soft_cap: float | None = None,
) -> torch.Tensor:
    """Causal attention of the last effective_q_lens positions of each sequence.

    q: (batch, queries, heads, width), those positions first; the others as for paged_attention.
    """
    pages = k_pages, v_pages
    keys, values = (paged.gathered(x, page_indices, q.shape[2]) for x in pages)
    place = torch.arange(keys.shape[2], device=q.device)
    row = torch.arange(q.shape[1], device=q.device)
    ahead = (place - row[:, None])[None] <= (lengths - effective_q_lens)[:, None, None]
    allowed = ahead & (place < lengths[:, None])[:, None]
    scores = torch.einsum("bqhd,bhkd->bhqk", q, keys)
    weights = softmax(paged.capped(scores, attn_logits_soft_cap).float(), allowed[:, None], None)
    return torch.einsum("bhqk,bhkd->bqhd", weights.to(values.dtype), values)


def ragged_paged_attention(
    q: torch.Tensor,
    kv_pages: torch.Tensor,
    kv_lens: torch.Tensor,
    page_indices: torch.Tensor,
    cu_q_lens: torch.Tensor,
    num_seqs: torch.Tensor,
    sm_scale: float = 1.0,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
    mask_value: float | None = None,
    k_scale: float | None = None,
    v_scale: float | None = None,
    use_kernel: bool = True,
    num_kv_pages_per_block: int | None = None,
    num_queries_per_block: int | None = None,
    vmem_limit_bytes: int | None = None,
) -> torch.Tensor:
    """Causal attention of the last positions of num_seqs sequences, one after the other in `q`.

    q: (tokens, heads, width), zero in the result after the last sequence; kv_pages: (pages, page
    size, 2 kv heads, width), keys and values in turn; cu_q_lens: (n + 1,), where each begins.
    """
    given = q, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs
    least = paged.LEAST if mask_value is None else mask_value
    how = float(sm_scale), sliding_window, soft_cap, least, k_scale, v_scale
    if not use_kernel or _needs_gradients(q, kv_pages):
        return paged.ragged_products(*given, *how)
    blocks = num_kv_pages_per_block, num_queries_per_block, vmem_limit_bytes
    return ops.ragged_paged_attention(*given, *how, *blocks)


def _needs_gradients(*tensors: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
