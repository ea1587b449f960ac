"""The ops of torch.nn's chunked linear_cross_entropy: a scan over chunks of the batch.

Logits exist for one chunk at a time. With a reduction, gradients are computed along with the loss,
as PyTorch's autograd expects of the op; those that are not asked for are empty. Everything is
computed in the op's accumulation dtype.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import Array, lax

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import Unsupported, lower


def linear_cross_entropy(
    x: Array,
    linear_weight: Array,
    target: Array,
    linear_bias: Array | None,
    weight: Array | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    compute_input_grad: bool,
    compute_linear_weight_grad: bool,
    compute_linear_bias_grad: bool,
) -> tuple[Array, Array, Array, Array]:
    if label_smoothing:
        raise Unsupported(
            "Label smoothing is not covered in the chunked linear_cross_entropy.",
            "Pass label_smoothing=0.",
        )
    dtype = dtypes.to_numpy(acc_dtype)
    table, bias = _linear(linear_weight, linear_bias, dtype)
    target, scale = _rows(target, weight, ignore_index, dtype)
    if reduction == "mean":
        total = scale.sum()
        scale = scale / jnp.where(total == 0, jnp.nan, total)
    classes = jnp.arange(table.shape[0])

    def one(sums: Any, chunk: Any) -> tuple[Any, Array | None]:
        rows, target, scale = chunk
        logits, normalizer, chosen = _forward(rows, target, table, bias)
        loss, table_grad, bias_grad = sums
        loss = loss + scale @ (normalizer - chosen)
        probable = jnp.exp(logits - normalizer[:, None])
        slope = scale[:, None] * (probable - (target[:, None] == classes))
        if compute_linear_weight_grad:
            table_grad = table_grad + slope.T @ rows
        if compute_linear_bias_grad:
            bias_grad = bias_grad + slope.sum(0)
        return (loss, table_grad, bias_grad), slope @ table if compute_input_grad else None

    start = (
        jnp.full((), jnp.nan if reduction == "mean" and not x.shape[0] else 0, dtype),
        jnp.zeros(table.shape if compute_linear_weight_grad else (0, 0), dtype),
        jnp.zeros(bias.shape if compute_linear_bias_grad else (0,), dtype),
    )
    chunks = _chunks(chunk_size, x.astype(dtype), target, scale)
    (loss, table_grad, bias_grad), row_grads = lax.scan(one, start, chunks)
    if row_grads is None:
        return loss, jnp.zeros((0, 0), dtype), table_grad, bias_grad
    return loss, row_grads.reshape(-1, x.shape[1])[: x.shape[0]], table_grad, bias_grad


def linear_cross_entropy_of_rows(
    x: Array,
    linear_weight: Array,
    target: Array,
    linear_bias: Array | None,
    weight: Array | None,
    ignore_index: int,
    chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Array:
    dtype = dtypes.to_numpy(acc_dtype)
    table, bias = _linear(linear_weight, linear_bias, dtype)
    target, scale = _rows(target, weight, ignore_index, dtype)

    def one(chunk: Any) -> Array:
        rows, target, scale = chunk
        _, normalizer, chosen = _forward(rows, target, table, bias)
        return scale * (normalizer - chosen)

    chunks = _chunks(chunk_size, x.astype(dtype), target, scale)
    return lax.map(one, chunks).reshape(-1)[: x.shape[0]]


def _linear(table: Array, bias: Array | None, dtype: Any) -> tuple[Array, Array]:
    zero = jnp.zeros(table.shape[0], dtype)
    return table.astype(dtype), zero if bias is None else bias.astype(dtype)


def _rows(
    target: Array, weight: Array | None, ignore_index: int, dtype: Any
) -> tuple[Array, Array]:
    """Targets within range, and the weight of each row: that of its class, 0 if it is ignored."""
    ignored = target == ignore_index
    target = jnp.where(ignored, 0, target)
    scale = jnp.ones((), dtype) if weight is None else weight.astype(dtype)[target]
    return target, jnp.where(ignored, 0, scale)


def _forward(rows: Array, target: Array, table: Array, bias: Array) -> tuple[Array, Array, Array]:
    """The logits of a chunk, their logsumexp, and the logits of the targets."""
    logits = rows @ table.T + bias
    chosen = jnp.take_along_axis(logits, target[:, None], 1, mode="promise_in_bounds")[:, 0]
    return logits, jax.nn.logsumexp(logits, 1), chosen


def _chunks(size: int, *arrays: Array) -> tuple[Array, ...]:
    """Each array as [chunks, size, ...]; the last chunk is padded with rows of weight 0."""
    count = -(-arrays[0].shape[0] // size)

    def cut(array: Array) -> Array:
        missing = count * size - array.shape[0]
        padded = jnp.pad(array, [(0, missing), *[(0, 0)] * (array.ndim - 1)])
        return padded.reshape(count, size, *array.shape[1:])

    return tuple(cut(array) for array in arrays)


def _register() -> None:
    """Import the module of torch 2.13 that defines the ops, which torch does lazily."""
    module = "torch.nn.modules.linear_cross_entropy"
    if importlib.util.find_spec(module) is not None:
        importlib.import_module(module)
        ops: Any = torch.ops.torch_nn
        lower(ops._linear_cross_entropy_batch_chunked.default)(linear_cross_entropy)
        rows: Any = ops._linear_cross_entropy_batch_chunked_no_reduction.default
        lower(rows)(linear_cross_entropy_of_rows)


_register()
