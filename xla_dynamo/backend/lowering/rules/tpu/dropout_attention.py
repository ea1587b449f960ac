"""Attention that drops weights on TPUs: the kernels of attention, where they are for it.

They draw what the products draw, so it does not matter which of the two computes a gradient.
"""

from __future__ import annotations

import dataclasses

from jax import Array

from xla_dynamo.backend import jax_adapter

from .. import dropout_attention as dropped
from . import _flash_attention as kernels
from .attention import kernel_call, mask_of


@dropped.dropout_attention.on("tpu")
def dropout_attention(
    seed: Array,
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Array, Array, Array]:
    call = kernel_call(query, key, value, 0.0, is_causal, mask, scale)
    operands = query, key, value
    if call is None:
        return dropped.dropout_attention.plain(seed, *operands, mask, dropout_p, is_causal, scale)
    call = dataclasses.replace(call, dropout=dropout_p)
    with jax_adapter.narrow():
        return *kernels.forward(call, *operands, mask_of(mask, call), seed), seed


@dropped.dropout_attention_backward.on("tpu")
def dropout_attention_backward(
    grad: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    logsumexp: Array,
    seed: Array,
    mask: Array | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[Array, Array, Array]:
    call = kernel_call(query, key, value, 0.0, is_causal, mask, scale)
    operands = grad, query, key, value, out, logsumexp
    if call is None:
        how = seed, mask, dropout_p, is_causal, scale
        return dropped.dropout_attention_backward.plain(*operands, *how)
    call = dataclasses.replace(call, dropout=dropout_p)
    with jax_adapter.narrow():
        return kernels.backward(call, *operands, mask_of(mask, call), seed)
