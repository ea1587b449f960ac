"""Attention of 16 bits on NVIDIA's GPUs: cuDNN's fused kernel, which writes no scores.

XLA:GPU has it as custom calls, whose form is that of
jax.nn.dot_product_attention(implementation="cudnn"). They take [batch, length, heads, features],
as most models make it: the transposes around the heads then copy nothing. JAX's own function asks
for the GPU while it is traced, and its gradient computes forward anew.

The option `attention` decides: "kernel" takes it wherever it fits, "xla" nowhere.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import attention

_LONG = 128  # from here on it beats XLA's own products (docs/gpu.md)
_FEATURES = range(8, 129, 8)
_API_VERSION = 2  # of custom calls whose configuration is a string
_TYPES = {jnp.dtype(jnp.bfloat16): "BF16", jnp.dtype(jnp.float16): "F16"}
# What a masked score is instead of -inf, of which cuDNN makes NaN: jax.nn's numbers.
_LOWEST = {"BF16": -(2.0**41), "F16": -(2.0**15)}
# Contracted and batch dimensions, left and right, of [b, t, h, d] and of scores [b, h, t, s].
_PRODUCTS = {
    "bmm1": (3, 3, (0, 2), (0, 2)),
    "bmm2": (3, 1, (0, 1), (0, 2)),
    "bmm1_grad_gemm1": (2, 1, (0, 1), (0, 2)),
    "bmm1_grad_gemm2": (3, 1, (0, 1), (0, 2)),
    "bmm2_grad_gemm1": (2, 1, (0, 1), (0, 2)),
    "bmm2_grad_gemm2": (3, 3, (0, 2), (0, 2)),
}


@attention.flash_attention.on("cuda")
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
    call = _call(query, key, value, dropout_p, is_causal, attn_mask, scale)
    if call is None:
        how = {"attn_mask": attn_mask, "scale": scale}
        return attention.flash_attention.plain(query, key, value, dropout_p, is_causal, **how)
    operands = [*map(_by_position, (query, key, value)), *_bias(attn_mask, call)]
    logsumexp = jax.ShapeDtypeStruct(query.shape[:-1], np.float32)
    out, logsumexp = _run(call, operands, [query], [logsumexp])
    return _where_a_key_is(attn_mask, out), logsumexp


@attention.flash_attention_backward.on("cuda")
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
    call = _call(query, key, value, dropout_p, is_causal, attn_mask, scale)
    if call is None:
        operands = grad_out, query, key, value, out, logsumexp, dropout_p, is_causal
        how = {"attn_mask": attn_mask, "scale": scale}
        return attention.flash_attention_backward.plain(*operands, **how)
    q, k, v, grad, out = map(
        _by_position, (query, key, value, _where_a_key_is(attn_mask, grad_out), out)
    )
    operands = [q, k, v, logsumexp, grad, *_bias(attn_mask, call), out]
    by_query, by_key, by_value = _run(call, operands, [query, key, value], [], "Backward")
    return by_query, by_key, by_value


@dataclass(frozen=True)
class Call:
    """What both calls of an attention know."""

    batch: int
    heads: int
    queries: int
    keys: int
    dtype: str
    is_causal: bool
    has_mask: bool
    scale: float

    def target(self, direction: str) -> str:
        """The name by which XLA:GPU knows the call."""
        return f"__cudnn$fmha{'ScaleBias' if self.has_mask else ''}Softmax{direction}"

    def config(self, direction: str) -> str:
        """XLA's CudnnfMHABackendConfig, as JSON."""
        products = {
            f"{name}_dot_dimension_numbers": {
                "lhs_contracting_dimensions": [str(left)],
                "rhs_contracting_dimensions": [str(right)],
                "lhs_batch_dimensions": [*map(str, left_batch)],
                "rhs_batch_dimensions": [*map(str, right_batch)],
            }
            for name, (left, right, left_batch, right_batch) in _PRODUCTS.items()
            if ("grad" in name) == (direction == "Backward")
        }
        scores = [*map(str, (self.batch, self.heads, self.queries, self.keys))]
        attention = {
            "algorithm": {
                "algo_id": "0",
                "math_type": "TENSOR_OP_MATH",
                "tuning_knobs": {"17": "1", "24": "0"},
                "is_cudnn_frontend": True,
                "workspace_size": "0",
            },
            "fmha_scale": self.scale,
            "intermediate_tensor_shape": {
                "element_type": self.dtype,
                "dimensions": scores,
                "layout": {"minor_to_major": ["3", "2", "1", "0"]},
                "is_dynamic_dimension": [False] * 4,
            },
            "is_flash_attention": True,
            "mask_type": "CAUSAL" if self.is_causal else "NO_MASK",
            "dropout_rate": 0.0,
            "seed": 0,
            "sliding_window_length": 0,
            "max_seg_per_batch": 1,
            "is_paged_attention": False,
        }
        both = {"operation_queue_id": "0", "cudnn_fmha_backend_config": attention | products}
        return json.dumps(both)


def _call(
    query: Array,
    key: Array,
    value: Array,
    dropout_p: float,
    is_causal: bool,
    mask: Array | None,
    scale: float | None,
) -> Call | None:
    """How cuDNN computes this attention; None where it does not."""
    batch, heads, queries, features = query.shape
    keys = key.shape[2]
    fits = (
        query.dtype in _TYPES
        and query.dtype == key.dtype == value.dtype
        and features in _FEATURES
        and not (is_causal and (mask is not None or queries != keys))
        and (mask is None or queries % 2 == keys % 2 == 0)
    )
    if not fits or not attention.takes_kernel(query, key, value, dropout_p, _LONG):
        return None
    scale = 1 / math.sqrt(features) if scale is None else scale
    dtype = _TYPES[query.dtype]
    return Call(batch, heads, queries, keys, dtype, is_causal, mask is not None, scale)


def _by_position(x: Array) -> Array:
    """[batch, heads, length, features] -> [batch, length, heads, features]."""
    return jnp.swapaxes(x, 1, 2)


def _run(
    call: Call, operands: list[Array], like: list[Array], more: list[Any], direction: str = ""
) -> list[Array]:
    """The call's results: arrays like some [b, h, t, d], in memory by position, and more."""
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in like] + more
    results.append(jax.ShapeDtypeStruct((0,), np.uint8))  # the workspace: XLA finds its size
    layouts = [(0, 2, 1, 3)] * len(like) + [None] * (len(more) + 1)
    run = jax.ffi.ffi_call(
        call.target(direction),
        results,
        output_layouts=layouts,
        custom_call_api_version=_API_VERSION,
        legacy_backend_config=call.config(direction),
    )
    return [*run(*operands)][:-1]


def _bias(mask: Array | None, call: Call) -> list[Array]:
    """What is added to scores, [1 or batch, 1 or heads, queries, keys]."""
    if mask is None:
        return []
    lowest, dtype = _LOWEST[call.dtype], jnp.bfloat16 if call.dtype == "BF16" else jnp.float16
    added = jnp.where(mask, 0, lowest) if mask.dtype == np.bool_ else jnp.maximum(mask, lowest)
    leading = (1,) * (4 - mask.ndim) + mask.shape[:-2]
    return [jnp.broadcast_to(added.astype(dtype), (*leading, call.queries, call.keys))]


def _where_a_key_is(mask: Array | None, rows: Array) -> Array:
    """Zeros for queries that may attend to no key, as in eager's kernels."""
    if mask is None:
        return rows
    seen = mask if mask.dtype == np.bool_ else mask > -jnp.inf
    has_key = jnp.any(seen, -1, keepdims=True)
    return jnp.where(has_key, rows, 0)
