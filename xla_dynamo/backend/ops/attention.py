"""Attention that also returns its unnormalised weights; lowering/rules/attention.py lowers it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .registration import op

# The kernels for TPUs: from so many queries and keys on, scores in memory cost more than a kernel
# that XLA cannot fuse with what is around; and the features of a head that they take.
KERNEL_LENGTH = 512
KERNEL_FEATURES = range(32, 257)


def _factor(query: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _fake_attention(
    query: Tensor, key: Tensor, value: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    weights, inverse = (query.new_empty((*query.shape[:-1], n)) for n in (key.shape[-2], 1))
    return torch.empty_like(query), weights, inverse


def like_operands(_: Tensor, *operands: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by query, key and value, row-major; first comes that of the result."""
    query, key, value = (x.new_empty(x.shape) for x in operands[:3])
    return query, key, value


def _fake_gradients(_: Tensor, *tensors: Any) -> tuple[Tensor, ...]:
    return tuple(map(_empty_gradient, tensors[:3]))


def _empty_gradient(x: Tensor) -> Tensor:
    """Positions before heads in memory, as in the gradients of ATen's attention."""
    return torch.empty_permuted(x.shape, (0, 2, 1, 3), dtype=x.dtype, device=x.device)


@op(fake=_fake_attention)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention; exp(score - the row's largest), [b, h, t, s]; and 1 / their sum, [b, h, t, 1].

    Where a row has no key to attend to, all three are zero. The first has the query's strides.
    """
    shared = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(shared, 1) for x in (key, value))
    scores = query @ key.mT * _factor(query, scale)
    if is_causal:
        scores = scores.masked_fill(scores.new_ones(scores.shape[-2:]).tril() == 0, -torch.inf)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if not mask.is_floating_point() else scores + mask
        )
    lowest = torch.finfo(scores.dtype).min
    weights = (scores - scores.amax(-1, keepdim=True).clamp(min=lowest)).exp()
    total = weights.sum(-1, keepdim=True)
    inverse = torch.where(total == 0, 0, 1 / total)
    return torch.empty_like(query).copy_(weights @ value * inverse), weights, inverse


@op(fake=_fake_gradients)
def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    weights: Tensor,
    inverse: Tensor,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by query, key and value."""
    heads, shared = key.shape[1], query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(shared, 1) for x in (key, value))
    weights = weights * inverse
    grad_scores = weights * (grad @ values.mT - (grad * out).sum(-1, keepdim=True))
    grad_scores = grad_scores * _factor(query, scale)
    by_key, by_value = (
        x.unflatten(1, (heads, shared)).sum(2) for x in (grad_scores.mT @ query, weights.mT @ grad)
    )
    gradients = zip((query, key, value), (grad_scores @ keys, by_key, by_value), strict=True)
    by_query, by_key, by_value = (_empty_gradient(x).copy_(g) for x, g in gradients)
    return by_query, by_key, by_value
