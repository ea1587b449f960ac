"""Scaled dot product attention and its gradient -> matrix products around an exponential.

PyTorch's forward returns the log-sum-exp of each row of scores, and its backward recomputes the
probabilities from it (flash attention's formulas), so nothing of size queries x keys lives between
the two. Of few keys, the weights themselves do (passes/joint/attention_backward.py).
Products accumulate in float32; probabilities enter the second product in the dtype of the values.
Query heads that share a key head become rows of one product.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes, registry
from xla_dynamo.backend.lowering.registry import PerPlatform, Unsupported, lower

aten = torch.ops.aten

_LEAST = 1e-30


@lower(aten._scaled_dot_product_flash_attention_for_cpu.default)
@PerPlatform
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
    """Probabilities are divided by their sum after the product: it is smaller than they are.

    Written as jax.nn.softmax, XLA:TPU would see attention and call a kernel of its own, for which
    it copies queries, keys and values of a transformer layer: a tenth more bytes in all.
    Rows without any key to attend to give zeros, as eager's kernel does: their maximum is finite.
    XLA:CPU makes one kernel of it all, if nothing between the products reshapes or compares.
    """
    _refuse_dropout(dropout_p)
    return forward(query, key, value, attn_mask, is_causal, scale)


def forward(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    is_causal: bool,
    scale: float | None,
    factor: Array | None = None,
) -> tuple[Array, Array]:
    """Attention, and the log-sum-exp of each row of scores; weights are multiplied by `factor`."""
    out, _, total, top = _attended(query, key, value, mask, is_causal, scale, factor)
    logsumexp = top + jnp.log(total)
    if mask is not None:
        logsumexp = jnp.where(total == 0, 0, logsumexp)
    return out, logsumexp.reshape(query.shape[:-1])


def takes_kernel(query: Array, key: Array, value: Array, dropout_p: float, long: int) -> bool:
    """Whether a platform's kernel shall compute this attention, as far as all kernels are alike.

    long: how many queries and keys it takes for that, unless the option `attention` decides.
    """
    chosen, (heads, key_heads) = registry.attention(), (query.shape[1], key.shape[1])
    lengths = query.shape[2], key.shape[2]
    fits = (
        key.shape == value.shape
        and min(query.shape[0], *lengths) > 0
        and key_heads > 0 == heads % key_heads
        and not dropout_p
    )
    return fits and (chosen == "kernel" or (chosen == "auto" and min(lengths) >= long))


def _attended(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None,
    is_causal: bool,
    scale: float | None,
    factor: Array | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Attention; of each row of scores, exp(score - top), their sum, and top, the largest."""
    shape, dtype = (*query.shape[:-1], value.shape[-1]), query.dtype
    if attn_mask is None and not is_causal:
        query = by_key_head(query, key)
    query, _, of_scores = _scaled(query, scale)
    scores = _masked(rows_by_features(query, key) * of_scores, attn_mask, is_causal)
    lowest = -jnp.inf if attn_mask is None else float(jnp.finfo(scores.dtype).min)
    top = jnp.max(scores, -1, keepdims=True, initial=lowest)
    weights = jnp.exp(scores - top)
    total = jnp.sum(weights, -1, keepdims=True)
    # The sum of a row that has a key is at least 1: adding _LEAST does not change it.
    divisor = total if attn_mask is None else total + _LEAST
    used = weights if factor is None else weights * factor.reshape(weights.shape)
    out = weighted(used, divisor, value)
    return out.reshape(shape).astype(dtype), weights, total, top


@PerPlatform
def weighted(weights: Array, divisor: Array, value: Array) -> Array:
    """Sums of values, weighted by weights / divisor."""
    return rows_by_keys(weights.astype(value.dtype), value) / divisor


@lower(torch.ops.xla_dynamo.attention.default)
def attention(
    query: Array, key: Array, value: Array, mask: Array | None, is_causal: bool, scale: float | None
) -> tuple[Array, Array, Array]:
    out, weights, total, _ = _attended(query, key, value, mask, is_causal, scale)
    inverse = 1 / total if mask is None else jnp.where(total == 0, 0, 1 / total)
    rows = query.shape[:-1]
    return out, weights.reshape(*rows, key.shape[-2]), inverse.reshape(*rows, 1)


@lower(torch.ops.xla_dynamo.attention_backward.default)
def attention_backward(
    grad_out: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    weights: Array,
    inverse: Array,
    scale: float | None,
) -> tuple[Array, Array, Array]:
    """`inverse` has one number for each row: where possible it scales rows, and not weights."""
    query, of_query, of_scores = _scaled(query, scale)
    along = jnp.sum(grad_out * out, -1, keepdims=True)
    grad_scores = weights * (rows_by_features(grad_out, value) - along) * (inverse * of_scores)
    return (
        rows_by_keys(grad_scores, key) * of_query,
        keys_by_features(grad_scores, query, key),
        keys_by_features(weights, grad_out * inverse, value),
    )


@lower(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
@PerPlatform
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
    _refuse_dropout(dropout_p)
    return backward(grad_out, query, key, value, out, logsumexp, attn_mask, is_causal, scale)


def backward(
    grad_out: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    logsumexp: Array,
    mask: Array | None,
    is_causal: bool,
    scale: float | None,
    factor: Array | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients of `forward`."""
    total = dtypes.accumulation(query.dtype)
    scaled, _, of_scores = _scaled(query, scale)
    scores = _masked(rows_by_features(scaled, key) * of_scores, mask, is_causal)
    weights = jnp.exp(scores - logsumexp[..., None].astype(total))
    return _gradients(grad_out, query, key, value, out, weights, scale, factor)


def backward_anew(
    grad_out: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    is_causal: bool,
    attn_mask: Array | None,
    scale: float | None,
) -> tuple[Array, Array, Array]:
    """The gradients without the log-sum-exp: weights are computed by what forward computes them by.

    In a program that holds both, the barrier keeps XLA from computing them once: from forward to
    backward they would be the largest of what a layer keeps. Where they are not, they are computed
    once, as where sizes are known early (passes/joint/attention_backward.py).
    """
    are_small = query.size * key.shape[-2] <= query.shape[-1] * (2 * query.size + 2 * key.size)
    if query.dtype.itemsize < 4 or not are_small:
        query, key, grad_out = lax.optimization_barrier((query, key, grad_out))
    _, weights, total, _ = _attended(query, key, value, attn_mask, is_causal, scale)
    divisor = total if attn_mask is None else total + _LEAST
    weights = (weights / divisor).reshape(*query.shape[:-1], key.shape[-2])
    return _gradients(grad_out, query, key, value, out, weights, scale)


def _gradients(
    grad_out: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    weights: Array,
    scale: float | None,
    factor: Array | None = None,
) -> tuple[Array, Array, Array]:
    total = dtypes.accumulation(query.dtype)
    query, of_query, of_scores = _scaled(query, scale)
    along = jnp.sum(grad_out.astype(total) * out.astype(total), -1, keepdims=True)
    grad_weights, used = rows_by_features(grad_out, value), weights
    if factor is not None:
        grad_weights, used = grad_weights * factor, weights * factor
    grad_scores = weights * (grad_weights - along) * of_scores
    used, grad_scores = used.astype(value.dtype), grad_scores.astype(query.dtype)
    return (
        (rows_by_keys(grad_scores, key) * of_query).astype(query.dtype),
        keys_by_features(grad_scores, query, key).astype(key.dtype),
        keys_by_features(used, grad_out, value).astype(value.dtype),
    )


def _scaled(query: Array, scale: float | None) -> tuple[Array, float, float]:
    """Scaled queries, the factor they were scaled by, and the factor that is left for the scores.

    There are fewer queries than scores, but only powers of two scale them without rounding.
    """
    factor = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    if abs(math.frexp(factor)[0]) == 0.5 and dtypes.accumulation(query.dtype) == query.dtype:
        return query * factor, factor, 1.0
    return query, 1.0, factor


def _masked(scores: Array, mask: Array | None, is_causal: bool) -> Array:
    if mask is not None:
        scores = (
            jnp.where(mask, scores, -jnp.inf)
            if mask.dtype == jnp.bool_
            else scores + mask.astype(scores.dtype)
        )
    if is_causal:
        rows, columns = (lax.broadcasted_iota(jnp.int32, scores.shape[-2:], i) for i in (0, 1))
        scores = jnp.where(rows >= columns, scores, -jnp.inf)
    return scores


@PerPlatform
def rows_by_features(rows: Array, keys: Array) -> Array:
    """(b, h, t, d) times (b, h', s, d), over d: (b, h, t, s)."""
    scores = product("bhtd,bhsd->bhts", by_key_head(rows, keys), keys)
    return scores.reshape(*rows.shape[:-1], keys.shape[-2])


@PerPlatform
def rows_by_keys(weights: Array, keys: Array) -> Array:
    """(b, h, t, s) times (b, h', s, d), over s: (b, h, t, d)."""
    rows = product("bhts,bhsd->bhtd", by_key_head(weights, keys), keys)
    return rows.reshape(*weights.shape[:-1], keys.shape[-1])


@PerPlatform
def keys_by_features(weights: Array, rows: Array, keys: Array) -> Array:
    """(b, h, t, s) times (b, h, t, d), over t and the heads that share a key: like `keys`."""
    return product("bhts,bhtd->bhsd", by_key_head(weights, keys), by_key_head(rows, keys))


def by_key_head(rows: Array, keys: Array) -> Array:
    """Query heads that share a key head, one after the other, as rows of that head."""
    batch, heads, _, width = rows.shape
    if heads == keys.shape[1]:
        return rows
    if heads % keys.shape[1]:
        raise Unsupported(
            f"Its {heads} query heads do not divide among {keys.shape[1]} key heads.",
            "Make the number of query heads a multiple of that of key heads.",
        )
    shared = heads // keys.shape[1]
    return rows.reshape(batch, keys.shape[1], shared * rows.shape[2], width)


def product(subscripts: str, left: Array, right: Array) -> Array:
    total = dtypes.accumulation(left.dtype)
    return jnp.einsum(subscripts, left, right, preferred_element_type=total)


def _refuse_dropout(dropout_p: float) -> None:
    if dropout_p:
        raise Unsupported(
            "The fused attention op is covered without dropout only.",
            "Pass dropout_p=0, or apply dropout outside of it.",
        )
