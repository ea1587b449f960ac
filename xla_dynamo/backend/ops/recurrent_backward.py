"""The gradients of the recurrent layer ops, each one op over the whole sequence.

A backward op takes the gradients of its forward's results (None where a result was not used), the
forward's inputs and its reserve. It runs through the time steps in the opposite order, and returns
the gradients of the inputs; that of a projection which is not there is empty. See recurrent_ops.py.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

LSTM_BACKWARD = (
    "(Tensor? grad_out, Tensor? grad_h, Tensor? grad_c, Tensor x, Tensor h0, Tensor w_ih, "
    "Tensor w_hh, Tensor? w_hr, Tensor out, Tensor gates, Tensor cells, bool reverse) "
    "-> (Tensor dx, Tensor dh0, Tensor dc0, Tensor dw_ih, Tensor dw_hh, Tensor db, Tensor dw_hr)"
)
GRU_BACKWARD = (
    "(Tensor? grad_out, Tensor? grad_h, Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, "
    "Tensor out, Tensor gates, bool reverse) "
    "-> (Tensor dx, Tensor dh0, Tensor dw_ih, Tensor dw_hh, Tensor db_ih, Tensor db_hh)"
)
RNN_BACKWARD = (
    "(Tensor? grad_out, Tensor? grad_h, Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, "
    "Tensor out, bool relu, bool reverse) "
    "-> (Tensor dx, Tensor dh0, Tensor dw_ih, Tensor dw_hh, Tensor db)"
)


@torch.library.custom_op("xla_dynamo::lstm_layer_backward", mutates_args=(), schema=LSTM_BACKWARD)
def lstm_layer_backward(
    grad_out: Tensor | None,
    grad_h: Tensor | None,
    grad_c: Tensor | None,
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    w_hr: Tensor | None,
    out: Tensor,
    gates: Tensor,
    cells: Tensor,
    reverse: bool,
) -> tuple[Tensor, ...]:
    steps = x.shape[0]
    dgates, dhs, hidden = ([x.new_empty(0)] * steps for _ in range(3))
    dh = wide(torch.zeros_like(h0) if grad_h is None else grad_h)
    dc = wide(torch.zeros_like(cells[0]) if grad_c is None else grad_c)
    for t in times(steps, not reverse):
        i, f, g, o = wide(gates[t]).chunk(4, -1)
        tanh_c = (f * wide(cells[t]) + i * g).tanh()
        dhs[t] = dh = dh if grad_out is None else dh + wide(grad_out[t])
        hidden[t] = o * tanh_c
        dh = dh if w_hr is None else dh @ wide(w_hr)
        dc = dc + dh * o * (1 - tanh_c**2)
        df, do = dc * wide(cells[t]) * f * (1 - f), dh * tanh_c * o * (1 - o)
        di, dg = dc * g * i * (1 - i), dc * i * (1 - g**2)
        dgates[t] = torch.cat([di, df, dg, do], -1)
        dc, dh = dc * f, dgates[t] @ wide(w_hh)
    stacked, before = torch.stack(dgates), _before(out, h0, reverse)
    dx, dw_ih, db = _input_gradients(stacked, x, w_ih)
    dw_hh = torch.einsum("tbg,tbp->gp", stacked, wide(before))
    dw_hr = torch.einsum("tbp,tbh->ph", torch.stack(dhs), torch.stack(hidden))
    dw_hr = dw_hr if w_hr is not None else x.new_empty(0)
    dtypes = (x, h0, cells, w_ih, w_hh, w_ih, w_ih)
    return _cast((dx, dh, dc, dw_ih, dw_hh, db, dw_hr), dtypes)


@torch.library.custom_op("xla_dynamo::gru_layer_backward", mutates_args=(), schema=GRU_BACKWARD)
def gru_layer_backward(
    grad_out: Tensor | None,
    grad_h: Tensor | None,
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    out: Tensor,
    gates: Tensor,
    reverse: bool,
) -> tuple[Tensor, ...]:
    steps, before = x.shape[0], _before(out, h0, reverse)
    dinput, dhidden = ([x.new_empty(0)] * steps for _ in range(2))
    dh = wide(torch.zeros_like(h0) if grad_h is None else grad_h)
    for t in times(steps, not reverse):
        r, z, n, hn = wide(gates[t]).chunk(4, -1)
        dh = dh if grad_out is None else dh + wide(grad_out[t])
        dn = dh * (1 - z) * (1 - n**2)
        dz, dr = dh * (wide(before[t]) - n) * z * (1 - z), dn * hn * r * (1 - r)
        dinput[t], dhidden[t] = torch.cat([dr, dz, dn], -1), torch.cat([dr, dz, dn * r], -1)
        dh = dh * z + dhidden[t] @ wide(w_hh)
    dx, dw_ih, db_ih = _input_gradients(torch.stack(dinput), x, w_ih)
    _, dw_hh, db_hh = _input_gradients(torch.stack(dhidden), before, w_hh)
    return _cast((dx, dh, dw_ih, dw_hh, db_ih, db_hh), (x, h0, w_ih, w_hh, w_ih, w_hh))


@torch.library.custom_op("xla_dynamo::rnn_layer_backward", mutates_args=(), schema=RNN_BACKWARD)
def rnn_layer_backward(
    grad_out: Tensor | None,
    grad_h: Tensor | None,
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    out: Tensor,
    relu: bool,
    reverse: bool,
) -> tuple[Tensor, ...]:
    steps, dgates = x.shape[0], [x.new_empty(0)] * x.shape[0]
    dh = wide(torch.zeros_like(h0) if grad_h is None else grad_h)
    for t in times(steps, not reverse):
        dh = dh if grad_out is None else dh + wide(grad_out[t])
        dgates[t] = dh * (out[t] > 0) if relu else dh * (1 - wide(out[t]) ** 2)
        dh = dgates[t] @ wide(w_hh)
    stacked, before = torch.stack(dgates), _before(out, h0, reverse)
    dx, dw_ih, db = _input_gradients(stacked, x, w_ih)
    dw_hh = torch.einsum("tbg,tbp->gp", stacked, wide(before))
    return _cast((dx, dh, dw_ih, dw_hh, db), (x, h0, w_ih, w_hh, w_ih))


@lstm_layer_backward.register_fake
def _(
    grad_out: Tensor | None,
    grad_h: Tensor | None,
    grad_c: Tensor | None,
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    w_hr: Tensor | None,
    out: Tensor,
    gates: Tensor,
    cells: Tensor,
    reverse: bool,
) -> tuple[Tensor, ...]:
    dw_hr = w_ih.new_empty((0,) if w_hr is None else w_hr.shape)
    dc, db = cells.new_empty(cells.shape[1:]), w_ih.new_empty(w_ih.shape[:1])
    return *_like(x, h0), dc, *_like(w_ih, w_hh), db, dw_hr


@gru_layer_backward.register_fake
def _(
    grad_out: Tensor | None,
    grad_h: Tensor | None,
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    out: Tensor,
    gates: Tensor,
    reverse: bool,
) -> tuple[Tensor, ...]:
    biases = (weight.new_empty(weight.shape[:1]) for weight in (w_ih, w_hh))
    return *_like(x, h0, w_ih, w_hh), *biases


@rnn_layer_backward.register_fake
def _(
    grad_out: Tensor | None,
    grad_h: Tensor | None,
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    out: Tensor,
    relu: bool,
    reverse: bool,
) -> tuple[Tensor, ...]:
    return *_like(x, h0, w_ih, w_hh), w_ih.new_empty(w_ih.shape[:1])


def times(steps: int, reverse: bool) -> Iterable[int]:
    """The time steps in the order in which a layer visits them."""
    return range(steps - 1, -1, -1) if reverse else range(steps)


def wide(x: Tensor) -> Tensor:
    """`x` in the dtype that layers of its dtype compute in."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _before(out: Tensor, h0: Tensor, reverse: bool) -> Tensor:
    """The hidden state that enters each step."""
    return torch.cat([out[1:], h0[None]] if reverse else [h0[None], out[:-1]])


def _input_gradients(dgates: Tensor, x: Tensor, w_ih: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dw_ih = torch.einsum("tbg,tbi->gi", dgates, wide(x))
    return dgates @ wide(w_ih), dw_ih, dgates.sum((0, 1))


def _like(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in tensors)


def _cast(values: tuple[Tensor, ...], models: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(v.to(model.dtype) for v, model in zip(values, models, strict=True))
