"""One recurrent layer in one direction as one op, whatever the sequence's length.

`xla_dynamo::lstm_layer`, `gru_layer` and `rnn_layer` run over a whole [time, batch, feature] input;
with `reverse` they run from the last time step to the first. Tracers see single nodes, and their
gradients are single nodes as well (recurrent_gradients.py). lowering/rules/recurrent.py makes scans
of them; what is here runs where an op falls back to eager. Next to its results a forward op returns
its reserve: the gates after activation, and what else its backward would have to compute again.
Importing this module registers the ops.

16-bit layers compute in float32; states and gates are rounded where they leave a time step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .recurrent_backward import (
    gru_layer_backward,
    lstm_layer_backward,
    rnn_layer_backward,
    times,
    wide,
)

_WEIGHTS = "Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh"


@torch.library.custom_op(
    "xla_dynamo::lstm_layer",
    mutates_args=(),
    schema=f"(Tensor x, Tensor h0, Tensor c0, {_WEIGHTS}, Tensor? w_hr, bool reverse) "
    "-> (Tensor out, Tensor h_n, Tensor c_n, Tensor gates, Tensor cells)",
)
def lstm_layer(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    w_hr: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, ...]:
    """Gates are i, f, g, o; `cells` holds the cell state that enters each step."""
    projected, steps = _project(x, w_ih, b_ih, b_hh), x.shape[0]
    outs, gates, cells = ([x.new_empty(0)] * steps for _ in range(3))
    h, c = h0, wide(c0)
    for t in times(steps, reverse):
        i, f, g, o = (wide(projected[t]) + wide(h) @ wide(w_hh).T).chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        gates[t], cells[t] = torch.cat([i, f, g, o], -1).to(x.dtype), c.to(c0.dtype, copy=True)
        c = f * c + i * g
        h = (o * c.tanh()).to(x.dtype)
        h = h if w_hr is None else (wide(h) @ wide(w_hr).T).to(x.dtype)
        outs[t] = h
    return torch.stack(outs), h.clone(), c.to(c0.dtype), torch.stack(gates), torch.stack(cells)


@torch.library.custom_op(
    "xla_dynamo::gru_layer",
    mutates_args=(),
    schema=f"(Tensor x, Tensor h0, {_WEIGHTS}, bool reverse) "
    "-> (Tensor out, Tensor h_n, Tensor gates)",
)
def gru_layer(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, ...]:
    """Gates are r, z, n, and the hidden state's part of n before r scales it."""
    projected, steps = _project(x, w_ih, b_ih, None), x.shape[0]
    outs, gates = ([x.new_empty(0)] * steps for _ in range(2))
    h = h0
    for t in times(steps, reverse):
        recurrent = wide(h) @ wide(w_hh).T + (0 if b_hh is None else wide(b_hh))
        (xr, xz, xn), (hr, hz, hn) = wide(projected[t]).chunk(3, -1), recurrent.chunk(3, -1)
        r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
        n = (xn + r * hn).tanh()
        h = (n + z * (wide(h) - n)).to(x.dtype)
        outs[t], gates[t] = h, torch.cat([r, z, n, hn], -1).to(x.dtype)
    return torch.stack(outs), h.clone(), torch.stack(gates)


@torch.library.custom_op(
    "xla_dynamo::rnn_layer",
    mutates_args=(),
    schema=f"(Tensor x, Tensor h0, {_WEIGHTS}, bool relu, bool reverse) "
    "-> (Tensor out, Tensor h_n)",
)
def rnn_layer(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    relu: bool,
    reverse: bool,
) -> tuple[Tensor, ...]:
    projected, steps = _project(x, w_ih, b_ih, b_hh), x.shape[0]
    outs, h = [x.new_empty(0)] * steps, h0
    for t in times(steps, reverse):
        before = wide(projected[t]) + wide(h) @ wide(w_hh).T
        outs[t] = h = (before.relu() if relu else before.tanh()).to(x.dtype)
    return torch.stack(outs), h.clone()


@lstm_layer.register_fake
def _(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    w_hr: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, ...]:
    steps, batch, _ = x.shape
    out = x.new_empty(steps, batch, h0.shape[-1])
    gates = x.new_empty(steps, batch, w_hh.shape[0])
    cells = c0.new_empty(steps, batch, c0.shape[-1])
    return out, x.new_empty(h0.shape), c0.new_empty(c0.shape), gates, cells


@gru_layer.register_fake
def _(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, ...]:
    steps, batch, size = x.shape[0], x.shape[1], h0.shape[-1]
    out, gates = x.new_empty(steps, batch, size), x.new_empty(steps, batch, 4 * size)
    return out, x.new_empty(h0.shape), gates


@rnn_layer.register_fake
def _(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    relu: bool,
    reverse: bool,
) -> tuple[Tensor, ...]:
    return x.new_empty(x.shape[0], x.shape[1], h0.shape[-1]), x.new_empty(h0.shape)


def _save_lstm(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    x, h0, _, w_ih, w_hh, b_ih, b_hh, w_hr, ctx.reverse = inputs
    out, _, _, gates, cells = output
    ctx.has = (b_ih is not None, b_hh is not None, w_hr is not None)
    _save(ctx, (x, h0, w_ih, w_hh, w_hr, out, gates, cells), (gates, cells))


def _lstm_gradients(
    ctx: Any,
    grad_out: Tensor | None,
    grad_h: Tensor | None,
    grad_c: Tensor | None,
    *_: Tensor | None,
) -> tuple[Tensor | None, ...]:
    gradients = lstm_layer_backward(grad_out, grad_h, grad_c, *ctx.saved_tensors, ctx.reverse)
    *leading, db, dw_hr = gradients
    given = zip((db, db, dw_hr), ctx.has, strict=True)
    return *leading, *(value if has else None for value, has in given), None


def _save_gru(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    x, h0, w_ih, w_hh, b_ih, b_hh, ctx.reverse = inputs
    out, _, gates = output
    ctx.has = (b_ih is not None, b_hh is not None)
    _save(ctx, (x, h0, w_ih, w_hh, out, gates), (gates,))


def _gru_gradients(
    ctx: Any, grad_out: Tensor | None, grad_h: Tensor | None, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    gradients = gru_layer_backward(grad_out, grad_h, *ctx.saved_tensors, ctx.reverse)
    given = zip(gradients[4:], ctx.has, strict=True)
    return *gradients[:4], *(value if has else None for value, has in given), None


def _save_rnn(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    x, h0, w_ih, w_hh, b_ih, b_hh, ctx.relu, ctx.reverse = inputs
    ctx.has = (b_ih is not None, b_hh is not None)
    _save(ctx, (x, h0, w_ih, w_hh, output[0]), ())


def _rnn_gradients(
    ctx: Any, grad_out: Tensor | None, grad_h: Tensor | None
) -> tuple[Tensor | None, ...]:
    gradients = rnn_layer_backward(grad_out, grad_h, *ctx.saved_tensors, ctx.relu, ctx.reverse)
    biases = (gradients[4] if has else None for has in ctx.has)
    return *gradients[:4], *biases, None, None


def _save(ctx: Any, tensors: tuple[Tensor | None, ...], reserve: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*reserve)
    ctx.save_for_backward(*tensors)


lstm_layer.register_autograd(_lstm_gradients, setup_context=_save_lstm)
gru_layer.register_autograd(_gru_gradients, setup_context=_save_gru)
rnn_layer.register_autograd(_rnn_gradients, setup_context=_save_rnn)


def _project(x: Tensor, w_ih: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> Tensor:
    projected = wide(x) @ wide(w_ih).T
    for bias in (b_ih, b_hh):
        projected = projected if bias is None else projected + wide(bias)
    return projected.to(x.dtype)
