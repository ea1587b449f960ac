"""LSTM layers by oneDNN, as eager PyTorch computes them on a CPU, between programs of XLA:CPU.

XLA:CPU's loop over time takes twice as long: a dozen ops in each step, and a product that is packed
anew. 32 steps of 16 rows, 256 units, two layers, two cores: inference 14.5 ms, here 7.5.

oneDNN keeps what its gradient needs in a workspace of its own. It takes the place of the gates
(ops/recurrent.py), which nothing but the gradient reads; with the cell states come the last one and
the first alone.

oneDNN takes memory as it lies, whatever the strides are: what comes transposed (batch_first) is
copied first, as in eager.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

aten = torch.ops.aten
_LSTM = 2  # the mode of oneDNN's recurrent layers


def is_differentiated(node: Node) -> bool:
    """Whether something reads what a layer keeps for its gradient."""
    items = [user for user in node.users if user.target is operator.getitem]
    return any(item.args[1] == 3 for item in items)


def forward(keeps: bool) -> Callable[..., tuple[Tensor, ...]]:
    """The kernel of `xla_dynamo::lstm_layer`; whether it keeps what its gradient needs."""

    def run(
        x: Tensor,
        h0: Tensor,
        c0: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None,
        b_hh: Tensor | None,
        w_hr: None,
        reverse: bool,
    ) -> tuple[Tensor, ...]:
        weights = _weights(w_ih, w_hh, b_ih, b_hh)
        shape = ([], _LSTM, w_hh.shape[1], 1, True, False, False)
        with torch.set_grad_enabled(keeps):  # or there is no workspace
            out, h, c, workspace = aten.mkldnn_rnn_layer(
                *_dense(x, *weights, h0, c0), reverse, *shape, keeps
            )
        last = (c, c0) if reverse else (c0, c)  # the state that enters a step is at its place
        return out, h, c, workspace, torch.stack(last)

    return run


def backward(_: bool) -> Callable[..., tuple[Tensor, ...]]:
    """The kernel of `xla_dynamo::lstm_layer_backward`."""

    def run(
        grad_out: Tensor | None,
        grad_h: Tensor | None,
        grad_c: Tensor | None,
        x: Tensor,
        h0: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None,
        b_hh: Tensor | None,
        w_hr: None,
        out: Tensor,
        workspace: Tensor,
        cells: Tensor,
        reverse: bool,
    ) -> tuple[Tensor, ...]:
        weights = _weights(w_ih, w_hh, b_ih, b_hh)
        c0, c = cells.flip(0) if reverse else cells
        h = out[0 if reverse else -1]
        states = (h0, c0, out, h, c, grad_out, grad_h, grad_c)
        shape = (_LSTM, w_hh.shape[1], 1, True, True, False, [], False)
        dx, dw_ih, dw_hh, bias, _, dh, dc = aten.mkldnn_rnn_layer_backward(
            *_dense(x, *weights, *states), reverse, *shape, workspace
        )
        return dx, dh, dc, dw_ih, dw_hh, bias, x.new_empty(0)

    return run


def _weights(
    w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
) -> tuple[Tensor, ...]:
    biases = (w_ih.new_zeros(w_ih.shape[0]) if bias is None else bias for bias in (b_ih, b_hh))
    return (w_ih, w_hh, *biases)


def _dense(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


KERNELS: dict[Any, Callable[[bool], Callable[..., Any]]] = {
    torch.ops.xla_dynamo.lstm_layer.default: forward,
    torch.ops.xla_dynamo.lstm_layer_backward.default: backward,
}
