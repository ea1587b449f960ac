"""Lower the recurrent layers of ops/recurrent.py to scans over time.

Only what depends on the previous step is inside the scan: the product of the hidden state with w_hh
and the gates. The input's projection and the weights' gradients are each one product over all steps
and batch rows. Time is the leading dimension throughout, so a step's slices are contiguous; with
`reverse` the scan runs backwards, and the sequence is not reversed.

The forward rules are the functions of ops/recurrent.py. The backward rules use the gates that these
saved. The biases among their operands serve only the eager bodies of the ops, which run forward
again.
"""

from __future__ import annotations

from functools import partial

import jax
import torch
from jax import Array, lax
from jax import numpy as jnp

from xla_dynamo.backend.lowering.dtypes import accumulation
from xla_dynamo.backend.lowering.registry import lower
from xla_dynamo.backend.ops import recurrent

ops = torch.ops.xla_dynamo

Optional = Array | None


@lower(ops.lstm_layer_backward.default)
def lstm_layer_backward(
    grad_out: Optional,
    grad_h: Optional,
    grad_c: Optional,
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Optional,
    b_hh: Optional,
    w_hr: Optional,
    out: Array,
    gates: Array,
    cells: Array,
    reverse: bool,
) -> tuple[Array, ...]:
    def step(carry: tuple[Array, Array], at: tuple):
        dh, dc = carry
        grad, gate, c = at
        i, f, g, o = jnp.split(_wide(gate), 4, axis=-1)
        tanh_c = lax.tanh(f * _wide(c) + i * g)
        dout = dh = dh if grad is None else dh + _wide(grad)
        dh = dh if w_hr is None else _times(dh, w_hr)
        dc = dc + dh * o * (1 - tanh_c * tanh_c)
        di, dg = dc * g * i * (1 - i), dc * i * (1 - g * g)
        df, do = dc * _wide(c) * f * (1 - f), dh * tanh_c * o * (1 - o)
        dgates = jnp.concatenate([di, df, dg, do], axis=-1)
        projection = () if w_hr is None else (dout, o * tanh_c)
        return (_times(dgates, w_hh), dc * f), (dgates, *projection)

    start = _start(grad_h, h0), _start(grad_c, cells[0])
    steps = (grad_out, gates, cells)
    (dh, dc), (dgates, *projection) = lax.scan(step, start, steps, reverse=not reverse)
    before = _before(out, h0, reverse)
    dw_hr = _weight_gradient(*projection) if projection else jnp.zeros((0,), x.dtype)
    dw_ih, dw_hh = _weight_gradient(dgates, x), _weight_gradient(dgates, before)
    return _times(dgates, w_ih), dh, dc, dw_ih, dw_hh, dgates.sum((0, 1)), dw_hr


@lower(ops.gru_layer_backward.default)
def gru_layer_backward(
    grad_out: Optional,
    grad_h: Optional,
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Optional,
    b_hh: Optional,
    out: Array,
    gates: Array,
    reverse: bool,
) -> tuple[Array, ...]:
    def step(dh: Array, at: tuple):
        grad, gate, h = at
        r, z, n, hn = jnp.split(_wide(gate), 4, axis=-1)
        dh = dh if grad is None else dh + _wide(grad)
        dn = dh * (1 - z) * (1 - n * n)
        dz, dr = dh * (_wide(h) - n) * z * (1 - z), dn * hn * r * (1 - r)
        dinput = jnp.concatenate([dr, dz, dn], axis=-1)
        dhidden = jnp.concatenate([dr, dz, dn * r], axis=-1)
        return dh * z + _times(dhidden, w_hh), (dinput, dhidden)

    before = _before(out, h0, reverse)
    steps = (grad_out, gates, before)
    dh, (dinput, dhidden) = lax.scan(step, _start(grad_h, h0), steps, reverse=not reverse)
    dw_ih, dw_hh = _weight_gradient(dinput, x), _weight_gradient(dhidden, before)
    return _times(dinput, w_ih), dh, dw_ih, dw_hh, dinput.sum((0, 1)), dhidden.sum((0, 1))


@lower(ops.rnn_layer_backward.default)
def rnn_layer_backward(
    grad_out: Optional,
    grad_h: Optional,
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Optional,
    b_hh: Optional,
    out: Array,
    relu: bool,
    reverse: bool,
) -> tuple[Array, ...]:
    def step(dh: Array, at: tuple):
        grad, h = at
        dh, h = dh if grad is None else dh + _wide(grad), _wide(h)
        dgates = jnp.where(h > 0, dh, 0) if relu else dh * (1 - h * h)
        return _times(dgates, w_hh), dgates

    start = _start(grad_h, h0)
    dh, dgates = lax.scan(step, start, (grad_out, out), reverse=not reverse)
    before = _before(out, h0, reverse)
    dw_ih, dw_hh = _weight_gradient(dgates, x), _weight_gradient(dgates, before)
    return _times(dgates, w_ih), dh, dw_ih, dw_hh, dgates.sum((0, 1))


def _wide(x: Array) -> Array:
    return x.astype(accumulation(x.dtype))


def _rows_times(x: Array, weight: Array) -> Array:
    """x @ weight.T, accumulated wide; the weight stays as PyTorch lays it out."""
    dimensions = (((x.ndim - 1,), (1,)), ((), ()))
    wide = accumulation(x.dtype)
    return lax.dot_general(x, weight, dimensions, preferred_element_type=wide)


def _times(gradient: Array, weight: Array) -> Array:
    """gradient @ weight, of a wide gradient and a weight that may be narrow."""
    narrow = gradient.astype(weight.dtype)
    return jnp.matmul(narrow, weight, preferred_element_type=accumulation(weight.dtype))


def _weight_gradient(gradient: Array, x: Array) -> Array:
    """The sum over time and batch of the outer products of gradient and x."""
    dimensions = (((0, 1), (0, 1)), ((), ()))
    wide = accumulation(x.dtype)
    narrow = gradient.astype(x.dtype)
    return lax.dot_general(narrow, x, dimensions, preferred_element_type=wide)


def _before(out: Array, h0: Array, reverse: bool) -> Array:
    """The hidden state that enters each step."""
    parts = [out[1:], h0[None]] if reverse else [h0[None], out[:-1]]
    return jnp.concatenate(parts)


def _start(gradient: Optional, like: Array) -> Array:
    return _wide(jnp.zeros_like(like) if gradient is None else gradient)


JAX = recurrent.Library(
    cast=lambda x, like: x.astype(like.dtype),
    wide=_wide,
    rows_times=_rows_times,
    split=lambda x, count: jnp.split(x, count, axis=-1),
    join=lambda parts: jnp.concatenate(parts, axis=-1),
    sigmoid=lax.logistic,
    tanh=lax.tanh,
    relu=jax.nn.relu,
    scan=lax.scan,
)
lower(ops.lstm_layer.default)(partial(recurrent.lstm, JAX))
lower(ops.gru_layer.default)(partial(recurrent.gru, JAX))
lower(ops.rnn_layer.default)(partial(recurrent.rnn, JAX))
