"""Attention over keys and values that are kept in pages: kernels on TPUs, elsewhere products.

Lengths are data: a program serves all of them. lowering/rules/tpu/paged_attention.py says which
calls are kernels; the bodies are what stands in the place of the others, and have gradients, which
kernels lack.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .registration import op

LEAST = -0.7 * torch.finfo(torch.float32).max  # the score of what is masked, as in torch_xla


def softmax(scores: Tensor, allowed: Tensor, cap: float | None) -> Tensor:
    """Attention weights where `allowed`; with `cap`, scores are first bent into (-cap, cap)."""
    return capped(scores, cap).masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1)


def capped(scores: Tensor, cap: float | None) -> Tensor:
    return scores if cap is None else cap * torch.tanh(scores / cap)


def gathered(pages: Tensor, page_indices: Tensor, heads: int) -> Tensor:
    """(batch, heads, length, width) of pages (kv heads, pages, page size, width)."""
    rows = pages[:, page_indices.long()].flatten(2, 3).transpose(0, 1)
    return rows.repeat_interleave(heads // pages.shape[0], 1)


def decode_products(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    lengths: Tensor,
    page_indices: Tensor,
    cap: float | None,
) -> Tensor:
    """What `paged_attention` gives, of keys and values that are gathered."""
    keys, values = (gathered(pages, page_indices, q.shape[1]) for pages in (k_pages, v_pages))
    inside = torch.arange(keys.shape[2], device=q.device) < lengths[:, None]
    scores = torch.einsum("bhd,bhld->bhl", q, keys)
    out = torch.einsum("bhl,bhld->bhd", softmax(scores, inside[:, None], cap), values)
    return out.masked_fill(lengths[:, None, None] <= 0, 0)


def _like_queries(q: Tensor, *_: Any) -> Tensor:
    return q.new_empty(q.shape)


@op(fake=_like_queries, composed=True)
def paged_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    lengths: Tensor,
    page_indices: Tensor,
    pages_per_block: int,
    megacore: str | None,
    cap: float | None,
) -> Tensor:
    """Attention of one query for each sequence; zeros for a sequence of no length.

    q: (batch, heads, width); pages: (kv heads, pages, page size, width); page_indices: (batch, n),
    the pages of each sequence in order; lengths: (batch,). Scores are not scaled.
    pages_per_block, megacore: how a kernel divides its work.
    """
    return decode_products(q, k_pages, v_pages, lengths, page_indices, cap).contiguous()


def ragged_products(
    q: Tensor,
    kv_pages: Tensor,
    kv_lens: Tensor,
    page_indices: Tensor,
    cu_q_lens: Tensor,
    num_seqs: Tensor,
    scale: float,
    window: int | None,
    cap: float | None,
    least: float,
    k_scale: float | None,
    v_scale: float | None,
) -> Tensor:
    """What `ragged_paged_attention` gives: all queries with the keys of each sequence in turn."""
    out, token = torch.zeros_like(q), torch.arange(q.shape[0], device=q.device)
    for index in range(kv_lens.shape[0]):
        begin, end, length = cu_q_lens[index], cu_q_lens[index + 1], kv_lens[index]
        rows = kv_pages[page_indices[index].long()].flatten(0, 1)
        keys, values = _scaled(rows[:, 0::2], k_scale, q), _scaled(rows[:, 1::2], v_scale, q)
        place = torch.arange(keys.shape[0], device=q.device)
        ahead = place - (token - begin)[:, None] - (length - (end - begin))
        allowed = ahead <= 0 if window is None else (ahead <= 0) & (ahead > -window)
        scores = torch.einsum("qhd,khd->hqk", q, keys).float() * scale
        scores = capped(scores, cap).masked_fill(~allowed, least)
        weights = scores.masked_fill(place >= length, -torch.inf).softmax(-1).to(values.dtype)
        own = (token >= begin) & (token < end) & (index < num_seqs)
        out = torch.where(own[:, None, None], torch.einsum("hqk,khd->qhd", weights, values), out)
    return out


def _scaled(rows: Tensor, scale: float | None, q: Tensor) -> Tensor:
    """Keys or values, (length, kv heads, width), for each head of q, of its dtype."""
    rows = rows if scale is None else rows.float() * scale
    return rows.to(q.dtype).repeat_interleave(q.shape[1] // rows.shape[1], 1)


@op(fake=_like_queries, composed=True)
def ragged_paged_attention(
    q: Tensor,
    kv_pages: Tensor,
    kv_lens: Tensor,
    page_indices: Tensor,
    cu_q_lens: Tensor,
    num_seqs: Tensor,
    scale: float,
    window: int | None,
    cap: float | None,
    least: float,
    k_scale: float | None,
    v_scale: float | None,
    pages_per_block: int | None,
    queries_per_block: int | None,
    vmem_limit: int | None,
) -> Tensor:
    """Causal attention of the last positions of num_seqs sequences, one after the other in `q`.

    q: (tokens, heads, width), zero in the result after the last sequence; kv_pages: (pages, page
    size, 2 kv heads, width), keys and values in turn; cu_q_lens: (n + 1,), where each begins.
    least: the score of what is masked.
    pages_per_block, queries_per_block, vmem_limit: how a kernel divides its work.
    """
    how = scale, window, cap, least, k_scale, v_scale
    sequences = kv_lens, page_indices, cu_q_lens, num_seqs
    return ragged_products(q, kv_pages, *sequences, *how).contiguous()
