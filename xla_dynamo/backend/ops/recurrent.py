"""Ops for one recurrent layer in one direction, over a whole [time, batch, feature] input.

`xla_dynamo::lstm_layer`, `gru_layer` and `rnn_layer` run from the first time step to the last, with
`reverse` the other way round. Each is one node to tracers, and so is its gradient. The rules in
lowering/rules/recurrent.py lower them to scans; the bodies here run where an op falls back to
eager. After its results a forward op returns its reserve: the gates after activation, and whatever
else its backward would have to compute again; the body of a gradient runs forward again instead.

16-bit layers compute in float32; states and gates are rounded where they leave a time step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op, register_autograd


def lstm(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    w_hr: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """out, h_n, c_n; the gates i, f, g, o of each step, and the cell state that enters it."""

    def step(carry: tuple[Tensor, ...], projected: Tensor) -> tuple:
        h, c = carry
        i, f, g, o = (_wide(projected) + _rows_times(h, w_hh)).chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        gates = torch.cat([i, f, g, o], -1).to(x.dtype)
        entering, c = c.to(c0.dtype), f * c + i * g
        h = (o * c.tanh()).to(x.dtype)
        h = h if w_hr is None else _rows_times(h, w_hr).to(x.dtype)
        return (h, c), (h, gates, entering)

    projected = _project(x, w_ih, b_ih, b_hh)
    (h, c), (out, gates, cells) = _scan(step, (h0, _wide(c0)), projected, reverse)
    return out, h, c.to(c0.dtype), gates, cells


def gru(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """out, h_n; the gates r, z, n of each step, and n's hidden part before r scales it."""

    def step(carry: tuple[Tensor, ...], projected: Tensor) -> tuple:
        (h,) = carry
        recurrent = _rows_times(h, w_hh)
        recurrent = recurrent if b_hh is None else recurrent + _wide(b_hh)
        xr, xz, xn = _wide(projected).chunk(3, -1)
        hr, hz, hn = recurrent.chunk(3, -1)
        r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
        n = (xn + r * hn).tanh()
        h = (n + z * (_wide(h) - n)).to(x.dtype)
        return (h,), (h, torch.cat([r, z, n, hn], -1).to(x.dtype))

    projected = _project(x, w_ih, b_ih, None)
    (h,), (out, gates) = _scan(step, (h0,), projected, reverse)
    return out, h, gates


def rnn(
    x: Tensor,
    h0: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    relu: bool,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    """out and h_n."""

    def step(carry: tuple[Tensor, ...], projected: Tensor) -> tuple:
        before = _wide(projected) + _rows_times(carry[0], w_hh)
        h = (before.relu() if relu else before.tanh()).to(x.dtype)
        return (h,), (h,)

    projected = _project(x, w_ih, b_ih, b_hh)
    (h,), (out,) = _scan(step, (h0,), projected, reverse)
    return out, h


lstm_layer = custom_op("xla_dynamo::lstm_layer", lstm, mutates_args=())
gru_layer = custom_op("xla_dynamo::gru_layer", gru, mutates_args=())
rnn_layer = custom_op("xla_dynamo::rnn_layer", rnn, mutates_args=())


@lstm_layer.register_fake
def _(
    x: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor, *rest: object
) -> tuple[Tensor, ...]:
    steps, batch, _ = x.shape
    out, gates = (x.new_empty(steps, batch, size) for size in (h0.shape[-1], w_hh.shape[0]))
    cells = c0.new_empty(steps, batch, c0.shape[-1])
    return out, x.new_empty(h0.shape), c0.new_empty(c0.shape), gates, cells


@gru_layer.register_fake
def _(x: Tensor, h0: Tensor, *rest: object) -> tuple[Tensor, ...]:
    steps, batch, size = x.shape[0], x.shape[1], h0.shape[-1]
    out, gates = x.new_empty(steps, batch, size), x.new_empty(steps, batch, 4 * size)
    return out, x.new_empty(h0.shape), gates


@rnn_layer.register_fake
def _(x: Tensor, h0: Tensor, *rest: object) -> tuple[Tensor, ...]:
    return x.new_empty(x.shape[0], x.shape[1], h0.shape[-1]), x.new_empty(h0.shape)


def _define_gradient(
    layer: Callable[..., tuple[Tensor, ...]], results: int, order: Sequence[int], saved: str
) -> None:
    """Define `<layer>_layer_backward`, the gradient of a layer by its first `results` results.

    `order` lists, for each tensor that the layer takes, which result of backward belongs to it:
    biases may share one. `saved` declares backward's operands after the weights.
    """
    name = f"xla_dynamo::{layer.__name__}_layer"
    grads = ", ".join(f"Tensor? grad_{of}" for of in ("out", "h", "c")[:results])
    weights = "Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh"
    gradients = ", ".join(["Tensor"] * (max(order) + 1))
    schema = f"({grads}, Tensor x, Tensor h0, {weights}, {saved}) -> ({gradients})"
    firsts = [order.index(result) for result in range(max(order) + 1)]

    def forward_arguments(args: Sequence[Any]) -> tuple[list[Any], list[bool]]:
        """The tensors and the flags that forward took, by the arguments of backward."""
        flags = [arg for arg in args if isinstance(arg, bool)]
        x, h0, w_ih, w_hh, *biases = args[results : results + 6]
        w_hr = args[results + 6 : 2 + len(order)]
        biases = [w_ih.new_zeros(w_ih.shape[0]) if bias is None else bias for bias in biases]
        # An LSTM's c0 is not saved: it is one of the cell states of the reserve.
        c0 = [args[-2][-1 if flags[-1] else 0]] if layer is lstm else []
        return [x, h0, *c0, w_ih, w_hh, *biases, *w_hr], flags

    def backward(*args: Any) -> tuple[Tensor, ...]:
        tensors, flags = forward_arguments(args)
        found = _gradients(layer, args[:results], tensors, flags)
        return tuple(found[at] for at in firsts)

    def fake(*args: Any) -> tuple[Tensor, ...]:
        tensors, _ = forward_arguments(args)
        like = [args[results].new_empty(0) if tensor is None else tensor for tensor in tensors]
        return tuple(like[at].new_empty(like[at].shape) for at in firsts)

    op = custom_op(f"{name}_backward", backward, mutates_args=(), schema=schema)
    op.register_fake(fake)

    def save(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        tensors, ctx.flags = inputs[: len(order)], inputs[len(order) :]
        ctx.given = [tensor is not None for tensor in tensors]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[results:])
        ctx.save_for_backward(*tensors[:2], *tensors[results:], output[0], *output[results:])

    def differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        found = op(*grads[:results], *ctx.saved_tensors, *ctx.flags)
        used = (found[i] if given else None for i, given in zip(order, ctx.given, strict=True))
        return *used, *(None for _ in ctx.flags)

    register_autograd(name, differentiate, setup_context=save)


def _gradients(
    layer: Callable[..., tuple[Tensor, ...]],
    grads: Sequence[Tensor | None],
    tensors: Sequence[Tensor | None],
    flags: Sequence[bool],
) -> list[Tensor]:
    """The gradients by `tensors` of the layer, computed again without rounding to 16 bits.

    Only the last tensor may be None; its gradient is empty then.
    """
    given = [tensor for tensor in tensors if tensor is not None]

    def run(*args: Tensor) -> tuple[Tensor, ...]:
        return layer(*args, *tensors[len(args) :], *flags)[: len(grads)]

    # The body of an op runs below autograd, where only torch.func differentiates.
    results, pullback, *_ = torch.func.vjp(run, *map(_wide, given))
    pairs = zip(grads, results, strict=True)
    gradients = pullback(tuple(torch.zeros_like(r) if g is None else _wide(g) for g, r in pairs))
    found = [g.to(t.dtype).contiguous() for g, t in zip(gradients, given, strict=True)]
    return [*found, given[0].new_empty(0)]


def _scan(
    step: Callable[[tuple[Tensor, ...], Tensor], tuple[tuple[Tensor, ...], tuple[Tensor, ...]]],
    carry: tuple[Tensor, ...],
    xs: Tensor,
    reverse: bool,
) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    """lax.scan, as a loop."""
    outs = []
    for x in reversed(xs) if reverse else xs:
        carry, out = step(carry, x)
        outs.append(out)
    return carry, [torch.stack(steps[:: -1 if reverse else 1]) for steps in zip(*outs, strict=True)]


def _wide(x: Tensor) -> Tensor:
    """`x` in the dtype that layers of its dtype compute in."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _rows_times(x: Tensor, weight: Tensor) -> Tensor:
    return _wide(x) @ _wide(weight).T


def _project(x: Tensor, w_ih: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> Tensor:
    projected = _rows_times(x, w_ih)
    for bias in (b_ih, b_hh):
        projected = projected if bias is None else projected + _wide(bias)
    return projected.to(x.dtype)


_define_gradient(
    lstm,
    3,
    (0, 1, 2, 3, 4, 5, 5, 6),
    "Tensor? w_hr, Tensor out, Tensor gates, Tensor cells, bool reverse",
)
_define_gradient(gru, 2, (0, 1, 2, 3, 4, 5), "Tensor out, Tensor gates, bool reverse")
_define_gradient(rnn, 2, (0, 1, 2, 3, 4, 4), "Tensor out, bool relu, bool reverse")
