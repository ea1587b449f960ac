"""Attention on TPUs: a kernel for long sequences, XLA's own products for short ones.

The option `attention` decides otherwise: "kernel" takes it wherever it fits, "xla" nowhere. The op
and its gradient decide for themselves; what goes from one to the other is the same in both forms.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.ops.attention import KERNEL_FEATURES, KERNEL_LENGTH

from .. import attention
from .. import capped_attention as capped
from . import _flash_attention as kernels


@attention.flash_attention.on("tpu")
def flash_attention(
    query: Array,
    key: Array,
    value: Array,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> tuple[Array, Array]:
    call = kernel_call(query, key, value, dropout_p, is_causal, attn_mask, scale)
    if call is None:
        how = {"attn_mask": attn_mask, "scale": scale}
        return attention.flash_attention.plain(query, key, value, dropout_p, is_causal, **how)
    with jax_adapter.narrow():
        return kernels.forward(call, query, key, value, mask_of(attn_mask, call))


@attention.flash_attention_backward.on("tpu")
def flash_attention_backward(
    grad_out: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    logsumexp: Array,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> tuple[Array, Array, Array]:
    call = kernel_call(query, key, value, dropout_p, is_causal, attn_mask, scale)
    operands = grad_out, query, key, value, out, logsumexp
    if call is None and dropout_p:
        return attention.flash_attention_backward.plain(*operands, dropout_p, is_causal)
    if call is None:
        return attention.backward_anew(*operands[:-1], is_causal, attn_mask, scale)
    with jax_adapter.narrow():
        return kernels.backward(call, *operands, mask_of(attn_mask, call))


@capped.capped_attention.on("tpu")
def capped_attention(
    query: Array, key: Array, value: Array, mask: Array, scale: float, cap: float
) -> tuple[Array, Array]:
    call = _capped(query, key, value, mask, scale, cap)
    with jax_adapter.narrow():
        return kernels.forward(call, query, key, value, mask_of(mask, call))


@capped.capped_attention_backward.on("tpu")
def capped_attention_backward(
    grad: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    logsumexp: Array,
    mask: Array,
    scale: float,
    cap: float,
) -> tuple[Array, Array, Array]:
    call = _capped(query, key, value, mask, scale, cap)
    operands = grad, query, key, value, out, logsumexp
    with jax_adapter.narrow():
        return kernels.backward(call, *operands, mask_of(mask, call))


def _capped(
    query: Array, key: Array, value: Array, mask: Array, scale: float, cap: float
) -> kernels.Call:
    """How kernels compute it.

    Raises:
        Unsupported: they do not.
    """
    call = kernel_call(query, key, value, 0.0, False, mask, scale)
    if call is None or not cap > 0:
        raise capped.products()
    return dataclasses.replace(call, cap=cap)


def kernel_call(
    query: Array,
    key: Array,
    value: Array,
    dropout_p: float,
    is_causal: bool,
    mask: Array | None,
    scale: float | None,
) -> kernels.Call | None:
    """How kernels compute this attention; None where they do not."""
    batch, heads, queries, features = query.shape
    _, key_heads, keys, _ = key.shape
    fits = query.dtype in (np.float32, jnp.bfloat16) and features in KERNEL_FEATURES
    if not fits or not attention.takes_kernel(query, key, value, dropout_p, KERNEL_LENGTH):
        return None
    return kernels.Call(
        batch=batch,
        heads=heads,
        key_heads=key_heads,
        queries=queries,
        keys=keys,
        features=features,
        mask=None if mask is None else (1,) * (4 - mask.ndim) + (*mask.shape[:-1], keys),
        is_causal=is_causal,
        scale=1 / math.sqrt(features) if scale is None else scale,
        precision=_precision(),
        interpret=False,
    )


def mask_of(mask: Array | None, call: kernels.Call) -> Array | None:
    """The mask with four dimensions, of which the last has its full size."""
    if mask is None or call.mask is None:
        return None
    return jnp.broadcast_to(mask, (*mask.shape[:-1], call.keys)).reshape(call.mask)


def _precision() -> Any:
    """Of float32 products within kernels, which know "highest" and the TPU's own only."""
    is_default = jax.config.jax_default_matmul_precision == "default"  # pyright: ignore
    return lax.Precision.DEFAULT if is_default else lax.Precision.HIGHEST


@attention.weighted.on("tpu")
def weighted(weights: Array, divisor: Array, value: Array) -> Array:
    """Of 16 bits, weights are divided: XLA:TPU fuses a whole softmax with the product before it."""
    if value.dtype.itemsize > 2:
        return attention.weighted.plain(weights, divisor, value)
    return attention.rows_by_keys((weights / divisor).astype(value.dtype), value)


# Query heads that share a key head are a dimension of their own: as rows of one product, they would
# have to be copied.


@attention.rows_by_features.on("tpu")
def rows_by_features(rows: Array, keys: Array) -> Array:
    scores = attention.product("bkgtd,bksd->bkgts", _by_group(rows, keys), keys)
    return scores.reshape(*rows.shape[:-1], keys.shape[-2])


@attention.rows_by_keys.on("tpu")
def rows_by_keys(weights: Array, keys: Array) -> Array:
    rows = attention.product("bkgts,bksd->bkgtd", _by_group(weights, keys), keys)
    return rows.reshape(*weights.shape[:-1], keys.shape[-1])


@attention.keys_by_features.on("tpu")
def keys_by_features(weights: Array, rows: Array, keys: Array) -> Array:
    weights, rows = _by_group(weights, keys), _by_group(rows, keys)
    return attention.product("bkgts,bkgtd->bksd", weights, rows)


def _by_group(rows: Array, keys: Array) -> Array:
    attention.by_key_head(rows, keys)  # which refuses heads that do not divide
    batch, heads, length, width = rows.shape
    return rows.reshape(batch, keys.shape[1], heads // keys.shape[1], length, width)
