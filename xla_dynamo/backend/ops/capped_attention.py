"""Attention whose scores are bent into (-cap, cap): a kernel on TPUs, elsewhere products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .attention import like_operands
from .registration import op


def _products(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, cap: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keys and values for each head, bent scores, and weights: zeros where no key may be seen."""
    shared = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(shared, 1) for x in (key, value))
    bent = torch.tanh(torch.einsum("bhqd,bhkd->bhqk", query, keys) * scale / cap)
    scores = (bent.float() if bent.dtype.itemsize < 4 else bent) * cap
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return keys, values, bent, weights.masked_fill(~mask, 0)


def _fake(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    return query.new_empty(query.shape), query.new_empty(query.shape[:-1], dtype=wide)


@op(fake=_fake, composed=True)
def capped_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, cap: float
) -> tuple[Tensor, Tensor]:
    """Attention, and the log-sum-exp of each row of scores, zero where the products give none.

    query: [batch, heads, t, d]; key, value: [batch, key heads, s, d]; mask: bool, of 4 dimensions
    that broadcast to the scores, the last of them whole.
    """
    _, values, _, weights = _products(query, key, value, mask, scale, cap)
    out = torch.einsum("bhqk,bhkd->bhqd", weights.to(value.dtype), values)
    return out.contiguous(), weights.new_zeros(weights.shape[:-1])


@op(fake=like_operands, composed=True)
def capped_attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    mask: Tensor,
    scale: float,
    cap: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by query, key and value."""
    keys, values, bent, weights = _products(query, key, value, mask, scale, cap)
    of_weights = torch.einsum("bhqd,bhkd->bhqk", grad, values)
    along = (grad * out).to(weights.dtype).sum(-1, keepdim=True)
    of_scores = weights * (of_weights - along) * (1 - bent * bent).to(weights.dtype) * scale
    of_scores, weights = of_scores.to(query.dtype), weights.to(query.dtype)
    by_key = torch.einsum("bhqk,bhqd->bhkd", of_scores, query)
    by_value = torch.einsum("bhqk,bhqd->bhkd", weights, grad)
    by_query = torch.einsum("bhqk,bhkd->bhqd", of_scores, keys)
    heads = key.shape[1], query.shape[1] // key.shape[1]
    by_key, by_value = (x.unflatten(1, heads).sum(2) for x in (by_key, by_value))
    return by_query.contiguous(), by_key.contiguous(), by_value.contiguous()


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, mask, ctx.scale, ctx.cap = inputs
    ctx.save_for_backward(query, key, value, *output, mask)


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    operands = ctx.saved_tensors
    of = torch.ops.xla_dynamo.capped_attention_backward(grad, *operands, ctx.scale, ctx.cap)
    return *of, None, None, None


capped_attention.register_autograd(_backward, setup_context=_save)
