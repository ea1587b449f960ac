"""Attention that drops weights, as one op: a kernel on TPUs, which draws them again in backward.

Forward returns the seed of what it drew; with it, backward knows which weights were dropped.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .registration import op

LONGEST = 2**17  # queries, and keys: the positions for which there are bits


def _weights(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> Tensor:
    """The weights of keys, wide, [batch, heads, t, s]: zeros where no key may be seen."""
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(wide) @ _each_head(key, query).to(wide).mT
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if mask is not None:
        is_bool = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -torch.inf) if is_bool else scores + mask.to(wide)
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1).nan_to_num(0)


def _each_head(x: Tensor, query: Tensor) -> Tensor:
    return x.repeat_interleave(query.shape[1] // x.shape[1], 1)


def _factor(weights: Tensor, seed: Tensor, dropout_p: float) -> Tensor:
    """What weights are multiplied by: 0, or what makes up for it."""
    first, second = (int(word) for word in seed.cpu())
    generator = torch.Generator().manual_seed(first << 31 ^ second)
    kept = (
        torch.rand(weights.shape, generator=generator, device="cpu").to(weights.device) >= dropout_p
    )
    return kept.to(weights.dtype) / (1 - dropout_p)


def _fake(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.promote_types(query.dtype, torch.float32)
    rows = query.new_empty(query.shape[:-1], dtype=wide)
    return query.new_empty(query.shape), rows, query.new_empty(2, dtype=torch.uint32)


@op(fake=_fake, random=True)
def dropout_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention, what backward needs of each row of scores, and the seed, two words.

    query: [batch, heads, t, d]; key, value: [batch, key heads, s, d]; mask: bool, or numbers that
    are added to the scores, to which it broadcasts; 0 < dropout_p < 1.
    """
    seed = (
        torch.empty(1, dtype=torch.int64, device="cpu")
        .random_()
        .view(torch.uint32)
        .to(query.device)
    )
    weights = _weights(query, key, mask, is_causal, scale)
    used = (weights * _factor(weights, seed, dropout_p)).to(value.dtype)
    out = used @ _each_head(value, query)
    return out.contiguous(), weights.new_zeros(weights.shape[:-1]), seed


def _fake_gradients(_: Tensor, *operands: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (x.new_empty(x.shape) for x in operands[:3])
    return query, key, value


@op(fake=_fake_gradients)
def dropout_attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    seed: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by query, key and value."""
    weights = _weights(query, key, mask, is_causal, scale)
    factor = _factor(weights, seed, dropout_p)
    wide = weights.dtype
    of_weights = grad.to(wide) @ _each_head(value, query).to(wide).mT * factor
    along = (grad * out).to(wide).sum(-1, keepdim=True)
    by_score = weights * (of_weights - along)
    by_score = by_score * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    by_query = by_score @ _each_head(key, query).to(wide)
    of_heads = by_score.mT @ query.to(wide), (weights * factor).mT @ grad.to(wide)
    by_key, by_value = (x.unflatten(1, (key.shape[1], -1)).sum(2) for x in of_heads)
    found = zip((by_query, by_key, by_value), (query, key, value), strict=True)
    by_query, by_key, by_value = (x.to(like.dtype).contiguous() for x, like in found)
    return by_query, by_key, by_value


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    query, key, value, mask, *ctx.how = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(query, key, value, *output, mask)


def _backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 7
    of = torch.ops.xla_dynamo.dropout_attention_backward(grad, *ctx.saved_tensors, *ctx.how)
    return *of, None, None, None, None


dropout_attention.register_autograd(_backward, setup_context=_save)
