"""Attention over keys and values that are kept in pages, as torch_xla.experimental.custom_kernel.

Lengths are data: a program serves all of them, and computes what it masks.
"""

from __future__ import annotations

from typing import Any

import torch

_LEAST = -0.7 * torch.finfo(torch.float32).max  # the score of what is masked, as in torch_xla


def softmax(scores: torch.Tensor, allowed: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Attention weights where `allowed`; with `cap`, scores are first bent into (-cap, cap)."""
    return _capped(scores, cap).masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1)


def _capped(scores: torch.Tensor, cap: float | None) -> torch.Tensor:
    return scores if cap is None else cap * torch.tanh(scores / cap)


def _gathered(pages: torch.Tensor, page_indices: torch.Tensor, heads: int) -> torch.Tensor:
    """(batch, heads, length, width) of pages (kv heads, pages, page size, width)."""
    rows = pages[:, page_indices.long()].flatten(2, 3).transpose(0, 1)
    return rows.repeat_interleave(heads // pages.shape[0], 1)


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
    keys, values = (_gathered(pages, page_indices, q.shape[1]) for pages in (k_pages, v_pages))
    inside = torch.arange(keys.shape[2], device=q.device) < lengths[:, None]
    scores = torch.einsum("bhd,bhld->bhl", q, keys)
    weights = softmax(scores, inside[:, None], attn_logits_soft_cap)
    return torch.einsum("bhl,bhld->bhd", weights, values)


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
    keys, values = (_gathered(pages, page_indices, q.shape[2]) for pages in (k_pages, v_pages))
    place = torch.arange(keys.shape[2], device=q.device)
    row = torch.arange(q.shape[1], device=q.device)
    ahead = (place - row[:, None])[None] <= (lengths - effective_q_lens)[:, None, None]
    allowed = ahead & (place < lengths[:, None])[:, None]
    scores = torch.einsum("bqhd,bhkd->bhqk", q, keys)
    weights = softmax(_capped(scores, attn_logits_soft_cap).float(), allowed[:, None], None)
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
    **block_sizes: Any,
) -> torch.Tensor:
    """Causal attention of the last positions of num_seqs sequences, one after the other in `q`.

    q: (tokens, heads, width), zero in the result after the last sequence; kv_pages: (pages, page
    size, 2 kv heads, width), keys and values in turn; cu_q_lens: (n + 1,), where each begins.
    """
    out, token = torch.zeros_like(q), torch.arange(q.shape[0], device=q.device)
    for index in range(kv_lens.shape[0]):
        begin, end, length = cu_q_lens[index], cu_q_lens[index + 1], kv_lens[index]
        rows = kv_pages[page_indices[index].long()].flatten(0, 1)
        keys, values = _scaled(rows[:, 0::2], k_scale, q), _scaled(rows[:, 1::2], v_scale, q)
        place = torch.arange(keys.shape[0], device=q.device)
        ahead = place - (token - begin)[:, None] - (length - (end - begin))
        allowed = ahead <= 0 if sliding_window is None else (ahead <= 0) & (ahead > -sliding_window)
        scores = torch.einsum("qhd,khd->hqk", q, keys).float() * sm_scale
        least = _LEAST if mask_value is None else mask_value
        scores = _capped(scores, soft_cap).masked_fill(~allowed, least)
        weights = scores.masked_fill(place >= length, -torch.inf).softmax(-1).to(values.dtype)
        own = (token >= begin) & (token < end) & (index < num_seqs)
        out = torch.where(own[:, None, None], torch.einsum("hqk,khd->qhd", weights, values), out)
    return out


def _scaled(rows: torch.Tensor, scale: float | None, q: torch.Tensor) -> torch.Tensor:
    """Keys or values, (length, kv heads, width), for each head of q, of its dtype."""
    rows = rows if scale is None else rows.float() * scale
    return rows.to(q.dtype).repeat_interleave(q.shape[1] // rows.shape[1], 1)
