"""Attention that drops weights, as one op: a kernel on TPUs, which draws them again in backward.

Forward returns the seed of what it drew; with it, backward knows which weights were dropped.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from xla_dynamo.backend.graph import rng_keys

from .attention import like_operands
from .registration import op

LONGEST = 2**17  # queries, and keys: the positions for which there are bits


def _products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seed: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Tensor:
    """Attention, wide, with the weights that the seed keeps: zeros where no key may be seen."""
    query, key, value = (x.to(_wide(x)) for x in (query, key, value))
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if mask is not None:
        is_bool = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -torch.inf) if is_bool else scores + mask
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    sees = scores.amax(-1, keepdim=True) > -torch.inf
    weights = torch.where(sees, scores, 0).softmax(-1) * sees
    generator = torch.Generator().manual_seed(int(seed.cpu().view(torch.int64)))
    drawn = torch.rand(weights.shape, generator=generator, device="cpu")
    return weights * (drawn >= dropout_p).to(weights) / (1 - dropout_p) @ value


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _fake(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows = query.new_empty(query.shape[:-1], dtype=_wide(query))
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
    seed = rng_keys.new_key().to(query.device)
    out = _products(query, key, value, seed, mask, dropout_p, is_causal, scale)
    rows = query.new_zeros(query.shape[:-1], dtype=_wide(query))
    return out.to(query.dtype), rows, seed


@op(fake=like_operands)
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

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return _products(query, key, value, seed, mask, dropout_p, is_causal, scale)

    # The body of an op runs below autograd, where only torch.func differentiates.
    result, pullback, *_ = torch.func.vjp(attend, query, key, value)
    by_query, by_key, by_value = (x.contiguous() for x in pullback(grad.to(result.dtype)))
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
