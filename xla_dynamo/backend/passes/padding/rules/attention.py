"""Attention: nothing attends to a key that is padding."""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.backend.graph import rng_keys
from xla_dynamo.backend.passes.padding.layouts import plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused

from .products import alike

aten = torch.ops.aten


def _inputs(p: Padder, query: Padded, key: Padded, value: Padded) -> tuple[Padded, ...]:
    """The three with one layout for each dimension that they share; padded keys are zeros."""
    for x in (query, key, value):
        if x.padded_in([3]):
            raise Refused("the features of a head are padded", [x.dims[3].size])
    if query.padded_in([1]) or key.padded_in([1]):
        raise Refused("the number of heads is padded", [query.dims[1].size, key.dims[1].size])
    query, key, value = (p.plainly(x) for x in (query, key, value))
    query, key = alike(p, query, key, 0, 0)
    query, value = alike(p, query, value, 0, 0)
    key, value = alike(p, key, value, 2, 2)
    return query, p.masked(key, [2], 0), p.masked(value, [2], 0)


def _rows(p: Padder, x: Padded, query: Padded) -> Padded:
    """What has the rows of the query, zero in their padding."""
    for d in (0, 2):
        x = p.moved(x, d, query.dims[d])
    return p.masked(p.plainly(x), [2], 0)


def _mask(p: Padder, query: Padded, key: Padded, mask: Padded | None) -> Any:
    """The mask with that of the keys in it."""
    if not key.padded_in([2]):
        return mask if mask is None else p.laid_out(mask, [*query.dims[:3], key.dims[2]])
    rank, keys = 4 if mask is None else len(mask.dims), p.mask(key, [2])
    keys = p.emit(aten.view.default, keys, [*[1] * (rank - 1), key.value.shape[2]])
    if mask is None:
        wanted = key.value.dtype
        shape, dims = [1, 1, 1, key.value.shape[2]], (plain(1), plain(1), plain(1), key.dims[2])
        return p.give(_additive(p, keys, wanted, shape), dims)
    mask = p.laid_out(mask, [*query.dims[:3], key.dims[2]])
    if mask.dims[-1].size == 1:  # the same for all keys
        dims = [*mask.dims[:-1], key.dims[2]]
        mask = p.give(p.emit(aten.expand.default, mask, [p.padded(d.size) for d in dims]), dims)
    if mask.value.dtype == torch.bool:
        return p.give(p.emit(aten.logical_and.default, mask, keys), mask.dims)
    low = p.emit(
        aten.scalar_tensor.default, float("-inf"), dtype=mask.value.dtype, device=mask.value.device
    )
    return p.give(p.emit(aten.where.self, keys, mask, low), mask.dims)


def _of_backward(
    p: Padder,
    grad: Padded,
    query: Padded,
    key: Padded,
    value: Padded,
    out: Padded,
    logsumexp: Padded,
    mask: Padded | None,
) -> tuple[list[Padded], Any]:
    """The operands of a gradient, which sums over queries and over keys, and the mask."""
    query, key, value = _inputs(p, query, key, value)
    mask = _mask(p, query, key, mask)
    grad, query, out, logsumexp = (_rows(p, x, query) for x in (grad, query, out, logsumexp))
    return [grad, query, key, value, out, logsumexp], mask


def _additive(p: Padder, keys: Any, dtype: torch.dtype, shape: Any) -> Any:
    device = keys.meta["val"].device
    options = {"dtype": dtype, "device": device}
    zero = p.emit(aten.scalar_tensor.default, 0.0, **options)
    low = p.emit(aten.scalar_tensor.default, float("-inf"), **options)
    return p.emit(aten.where.self, keys, zero, low)


@pads("xla_dynamo.attention.default")
def attention(
    p: Padder,
    query: Padded,
    key: Padded,
    value: Padded,
    mask: Padded | None,
    is_causal: bool,
    scale: Any,
) -> Any:
    """With the weights, of which those of padded keys are zero."""
    query, key, value = _inputs(p, query, key, value)
    mask = _mask(p, query, key, mask)
    made = p.again(query, key, value, mask, is_causal, scale)
    rows = query.dims[:3]
    return p.give_all(made, [[*rows, value.dims[3]], [*rows, key.dims[2]], [*rows, plain(1)]])


@pads("xla_dynamo.attention_backward.default")
def attention_backward(
    p: Padder,
    grad: Padded,
    query: Padded,
    key: Padded,
    value: Padded,
    out: Padded,
    weights: Padded,
    inverse: Padded,
    scale: Any,
) -> Any:
    """Sums over queries and over keys."""
    query, key, value = _inputs(p, query, key, value)
    rows = [grad, query, out, inverse, weights]
    grad, query, out, inverse, weights = (_rows(p, x, query) for x in rows)
    weights = p.masked(weights, [3], 0)
    made = p.again(grad, query, key, value, out, weights, inverse, scale)
    return p.give_all(made, [query.dims, key.dims, value.dims])


def drops(p: Padder, seed: Any, operands: Any, how: Any) -> Any:
    """`dropout_attention` with the key of its bits: those of a position are the same."""
    query, key, value, mask = operands
    query, key, value = _inputs(p, query, key, value)
    mask = _mask(p, query, key, mask)
    made = p.emit(rng_keys.call, *seed, query, key, value, mask, *how)
    return p.give_all(made, [query.dims, query.dims[:3], [plain(2)]])


@pads("xla_dynamo.dropout_attention_backward.default")
def dropout_attention_backward(
    p: Padder,
    grad: Padded,
    query: Padded,
    key: Padded,
    value: Padded,
    out: Padded,
    logsumexp: Padded,
    seed: Padded,
    mask: Padded | None,
    *how: Any,
) -> Any:
    operands, mask = _of_backward(p, grad, query, key, value, out, logsumexp, mask)
    made = p.again(*operands, seed, mask, *how)
    return p.give_all(made, [x.dims for x in operands[1:4]])


@pads(aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_attention(
    p: Padder,
    query: Padded,
    key: Padded,
    value: Padded,
    dropout: float,
    is_causal: bool,
    mask: Padded | None,
    scale: Any,
) -> Any:
    """PyTorch's op for CPUs."""
    query, key, value = _inputs(p, query, key, value)
    mask = _mask(p, query, key, mask)
    made = p.again(query, key, value, dropout, is_causal, mask, scale)
    return p.give_all(made, [[*query.dims[:3], value.dims[3]], query.dims[:3]])


@pads(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def flash_attention_backward(
    p: Padder,
    grad: Padded,
    query: Padded,
    key: Padded,
    value: Padded,
    out: Padded,
    logsumexp: Padded,
    dropout: float,
    is_causal: bool,
    mask: Padded | None,
    scale: Any,
) -> Any:
    operands, mask = _of_backward(p, grad, query, key, value, out, logsumexp, mask)
    made = p.again(*operands, dropout, is_causal, mask, scale)
    return p.give_all(made, [x.dims for x in operands[1:4]])
