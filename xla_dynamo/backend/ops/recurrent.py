"""Ops for one recurrent layer in one direction, over a whole [time, batch, feature] input.

`xla_dynamo::lstm_layer`, `gru_layer` and `rnn_layer` run from the first time step to the last, with
`reverse` the other way round. Each is one node to tracers, and so is its gradient. The layers are
written once, for any `Library` of arrays: with JAX they are rules (lowering/rules/recurrent.py),
with PyTorch the bodies of the ops, which run where an op falls back to eager. After its results a
forward op returns its reserve: the gates after activation, and whatever else its backward would
have to compute again.

16-bit layers compute in float32; states and gates are rounded where they leave a time step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op, register_autograd

Array = Any  # of a Library


@dataclass(frozen=True)
class Library:
    """The functions of one library of arrays in which the layers are written."""

    cast: Callable[[Array, Array], Array]  # the first, in the dtype of the second
    wide: Callable[[Array], Array]  # in the dtype that layers of its dtype compute in
    rows_times: Callable[[Array, Array], Array]  # x @ weight.T, wide
    split: Callable[[Array, int], Sequence[Array]]  # the last dimension in equal parts
    join: Callable[[list[Array]], Array]
    sigmoid: Callable[[Array], Array]
    tanh: Callable[[Array], Array]
    relu: Callable[[Array], Array]
    scan: Callable[..., Any]  # jax.lax.scan, or the like

    def project(self, x: Array, w_ih: Array, *biases: Array | None) -> Array:
        """The part of the gates that depends on no other step, of all steps."""
        projected = self.rows_times(x, w_ih)
        for bias in biases:
            projected = projected if bias is None else projected + self.wide(bias)
        return self.cast(projected, x)


def lstm(
    on: Library,
    x: Array,
    h0: Array,
    c0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None,
    b_hh: Array | None,
    w_hr: Array | None,
    reverse: bool,
) -> tuple[Array, ...]:
    """out, h_n, c_n; the gates i, f, g, o of each step, and the cell state that enters it."""

    def step(carry: tuple[Array, Array], projected: Array) -> tuple:
        h, c = carry
        i, f, g, o = on.split(on.wide(projected) + on.rows_times(h, w_hh), 4)
        i, f, g, o = on.sigmoid(i), on.sigmoid(f), on.tanh(g), on.sigmoid(o)
        entering, c = on.cast(c, c0), f * c + i * g
        h = on.cast(o * on.tanh(c), x)
        h = h if w_hr is None else on.cast(on.rows_times(h, w_hr), x)
        return (h, c), (h, on.cast(on.join([i, f, g, o]), x), entering)

    projected = on.project(x, w_ih, b_ih, b_hh)
    start = (h0, on.wide(c0))
    (h, c), (out, gates, cells) = on.scan(step, start, projected, reverse=reverse)
    return out, h, on.cast(c, c0), gates, cells


def gru(
    on: Library,
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None,
    b_hh: Array | None,
    reverse: bool,
) -> tuple[Array, ...]:
    """out, h_n; the gates r, z, n of each step, and n's hidden part before r scales it."""

    def step(carry: tuple[Array], projected: Array) -> tuple:
        (h,) = carry
        recurrent = on.rows_times(h, w_hh)
        recurrent = recurrent if b_hh is None else recurrent + on.wide(b_hh)
        xr, xz, xn = on.split(on.wide(projected), 3)
        hr, hz, hn = on.split(recurrent, 3)
        r, z = on.sigmoid(xr + hr), on.sigmoid(xz + hz)
        n = on.tanh(xn + r * hn)
        h = on.cast(n + z * (on.wide(h) - n), x)
        return (h,), (h, on.cast(on.join([r, z, n, hn]), x))

    projected = on.project(x, w_ih, b_ih)
    (h,), (out, gates) = on.scan(step, (h0,), projected, reverse=reverse)
    return out, h, gates


def rnn(
    on: Library,
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None,
    b_hh: Array | None,
    relu: bool,
    reverse: bool,
) -> tuple[Array, ...]:
    """out and h_n."""
    activation = on.relu if relu else on.tanh

    def step(carry: tuple[Array], projected: Array) -> tuple:
        h = on.cast(activation(on.wide(projected) + on.rows_times(carry[0], w_hh)), x)
        return (h,), (h,)

    projected = on.project(x, w_ih, b_ih, b_hh)
    (h,), (out,) = on.scan(step, (h0,), projected, reverse=reverse)
    return out, h


def _scan(
    step: Callable[..., Any], carry: tuple[Tensor, ...], xs: Tensor, reverse: bool
) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    """lax.scan, as a loop."""
    outs = []
    for x in reversed(xs) if reverse else xs:
        carry, out = step(carry, x)
        outs.append(out)
    return carry, [torch.stack(steps[:: -1 if reverse else 1]) for steps in zip(*outs, strict=True)]


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


_TORCH = Library(
    cast=lambda x, like: x.to(like.dtype),
    wide=_wide,
    rows_times=lambda x, weight: _wide(x) @ _wide(weight).T,
    split=lambda x, count: x.chunk(count, -1),
    join=lambda parts: torch.cat(parts, -1),
    sigmoid=torch.sigmoid,
    tanh=torch.tanh,
    relu=torch.relu,
    scan=_scan,
)
_WEIGHTS = "Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh"


def _define(layer: Callable[..., Any], inputs: str, options: str, results: int) -> Any:
    name, outputs = f"xla_dynamo::{layer.__name__}_layer", ", ".join(["Tensor"] * results)
    schema = f"({inputs}, {_WEIGHTS}, {options}) -> ({outputs})"
    op = custom_op(name, partial(layer, _TORCH), mutates_args=(), schema=schema)

    @op.register_fake
    def fake(x: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        of_one_step = layer(_TORCH, x.new_empty(1, *x.shape[1:]), *rest)
        shapes = ((x.shape[0], *y.shape[1:]) if y.dim() == 3 else y.shape for y in of_one_step)
        return tuple(y.new_empty(shape) for y, shape in zip(of_one_step, shapes, strict=True))

    return op


lstm_layer = _define(lstm, "Tensor x, Tensor h0, Tensor c0", "Tensor? w_hr, bool reverse", 5)
gru_layer = _define(gru, "Tensor x, Tensor h0", "bool reverse", 3)
rnn_layer = _define(rnn, "Tensor x, Tensor h0", "bool relu, bool reverse", 2)


def _define_gradient(
    layer: Callable[..., tuple[Tensor, ...]], results: int, order: Sequence[int], saved: str
) -> None:
    """Define `<layer>_layer_backward`, the gradient of a layer by its first `results` results.

    `order` lists, for each tensor that the layer takes, which result of backward belongs to it:
    biases may share one. `saved` declares backward's operands after the weights.
    """
    name = f"xla_dynamo::{layer.__name__}_layer"
    grads = ", ".join(f"Tensor? grad_{of}" for of in ("out", "h", "c")[:results])
    gradients = ", ".join(["Tensor"] * (max(order) + 1))
    schema = f"({grads}, Tensor x, Tensor h0, {_WEIGHTS}, {saved}) -> ({gradients})"
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
        return layer(_TORCH, *args, *tensors[len(args) :], *flags)[: len(grads)]

    # The body of an op runs below autograd, where only torch.func differentiates.
    results, pullback, *_ = torch.func.vjp(run, *map(_wide, given))
    pairs = zip(grads, results, strict=True)
    gradients = pullback(tuple(torch.zeros_like(r) if g is None else _wide(g) for g, r in pairs))
    found = [g.to(t.dtype).contiguous() for g, t in zip(gradients, given, strict=True)]
    return [*found, given[0].new_empty(0)]


_define_gradient(
    lstm,
    3,
    (0, 1, 2, 3, 4, 5, 5, 6),
    "Tensor? w_hr, Tensor out, Tensor gates, Tensor cells, bool reverse",
)
_define_gradient(gru, 2, (0, 1, 2, 3, 4, 5), "Tensor out, Tensor gates, bool reverse")
_define_gradient(rnn, 2, (0, 1, 2, 3, 4, 4), "Tensor out, bool relu, bool reverse")
