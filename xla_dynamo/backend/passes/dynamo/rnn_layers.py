"""nn.LSTM, nn.GRU and nn.RNN in Dynamo's graph to one op a layer, before AOTAutograd unrolls them.

Dynamo (with `allow_rnn`) captures these modules as one call of torch.lstm, torch.gru,
torch.rnn_tanh or torch.rnn_relu. `replace_recurrent` exchanges that call for a function of the same
signature that is written with the ops of recurrent_ops.py: AOTAutograd, tracing through it, records
two nodes a layer and direction, one forward and one backward. Packed sequences keep PyTorch's own
function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.nn import functional

from xla_dynamo.backend.ops.recurrent import gru_layer, lstm_layer, rnn_layer


def replace_recurrent(gm: GraphModule) -> None:
    """Exchange the recurrent calls of Dynamo's graph in place."""
    changed = False
    for node in gm.graph.nodes:
        replacement = _REPLACEMENTS.get(node.target) if node.op == "call_function" else None
        if replacement is not None and not _is_packed(node):
            node.target = replacement
            changed = True
    if changed:
        gm.recompile()


def lstm(
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """torch.lstm of a padded sequence, one op a layer and direction."""
    stack = _Stack(params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    hidden, cell = hx
    autocast = _autocast_dtype(input)
    if autocast is not None:
        input, hidden, stack = input.to(autocast), hidden.to(autocast), stack.to(autocast)
        # Eager keeps the cell state wide where it projects, and only there.
        cell = cell if stack.weights(0)[-1] is not None else cell.to(autocast)

    def layer(x: Tensor, at: int, reverse: bool) -> tuple[Tensor, Tensor, Tensor]:
        w_ih, w_hh, b_ih, b_hh, w_hr = stack.weights(at)
        state = hidden[at], cell[at]
        return lstm_layer(x, *state, w_ih, w_hh, b_ih, b_hh, w_hr, reverse)[:3]

    out, (h_n, c_n) = stack.run(input, layer)
    return out, h_n, c_n


def gru(
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """torch.gru of a padded sequence, one op a layer and direction."""
    stack = _Stack(params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    if _autocast_dtype(input) is not None:  # eager's result has the hidden state's dtype
        input, stack = input.to(hx.dtype), stack.to(hx.dtype)

    def layer(x: Tensor, at: int, reverse: bool) -> tuple[Tensor, Tensor]:
        w_ih, w_hh, b_ih, b_hh, _ = stack.weights(at)
        return gru_layer(x, hx[at], w_ih, w_hh, b_ih, b_hh, reverse)[:2]

    out, (h_n,) = stack.run(input, layer)
    return out, h_n


def rnn_tanh(
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """torch.rnn_tanh of a padded sequence, one op a layer and direction."""
    stack = _Stack(params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return _rnn(input, hx, stack, relu=False)


def rnn_relu(
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor]:
    """torch.rnn_relu of a padded sequence, one op a layer and direction."""
    stack = _Stack(params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return _rnn(input, hx, stack, relu=True)


def _rnn(input: Tensor, hx: Tensor, stack: _Stack, relu: bool) -> tuple[Tensor, Tensor]:
    autocast = _autocast_dtype(input)
    if autocast is not None:
        input, hx, stack = input.to(autocast), hx.to(autocast), stack.to(autocast)

    def layer(x: Tensor, at: int, reverse: bool) -> tuple[Tensor, Tensor]:
        w_ih, w_hh, b_ih, b_hh, _ = stack.weights(at)
        return rnn_layer(x, hx[at], w_ih, w_hh, b_ih, b_hh, relu, reverse)

    out, (h_n,) = stack.run(input, layer)
    return out, h_n


@dataclass(frozen=True)
class _Stack:
    """Layers and directions over each other, in the order of PyTorch's flat parameter list."""

    params: Sequence[Tensor]
    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool

    def to(self, dtype: torch.dtype) -> _Stack:
        params = [param.to(dtype) for param in self.params]
        return _Stack(params, *(getattr(self, name) for name in list(self.__annotations__)[1:]))

    def weights(
        self, at: int
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """w_ih, w_hh, b_ih, b_hh and w_hr (the LSTM's projection) of one layer and direction."""
        each = len(self.params) // (self.num_layers * (1 + self.bidirectional))
        own = list(self.params[at * each : (at + 1) * each])
        w_ih, w_hh, *rest = own
        b_ih, b_hh = (rest.pop(0), rest.pop(0)) if self.has_biases else (None, None)
        return w_ih, w_hh, b_ih, b_hh, rest[0] if rest else None

    def run(
        self, x: Tensor, layer: Callable[[Tensor, int, bool], tuple[Tensor, ...]]
    ) -> tuple[Tensor, list[Tensor]]:
        """The last layer's output, and the final states of all layers stacked."""
        x = x.transpose(0, 1) if self.batch_first else x
        directions = (False, True) if self.bidirectional else (False,)
        finals: list[tuple[Tensor, ...]] = []
        for index in range(self.num_layers):
            outs = []
            for direction, reverse in enumerate(directions):
                out, *final = layer(x, index * len(directions) + direction, reverse)
                outs.append(out)
                finals.append(tuple(final))
            x = torch.cat(outs, -1) if self.bidirectional else outs[0]
            if self.train and index + 1 < self.num_layers and self.dropout != 0:
                x = functional.dropout(x, self.dropout, True)
        out = x.transpose(0, 1) if self.batch_first else x
        return out, [torch.stack(states) for states in zip(*finals, strict=True)]


_REPLACEMENTS: dict[object, Callable[..., tuple[Tensor, ...]]] = {
    torch.lstm: lstm,
    torch.gru: gru,
    torch.rnn_tanh: rnn_tanh,
    torch.rnn_relu: rnn_relu,
}


def _is_packed(node: Node) -> bool:
    """Packed calls pass the batch sizes, a tensor, second: (data, batch_sizes, hx, params, ...)."""
    at = 1 if node.target == torch.lstm else 2
    return node.kwargs != {} or len(node.args) != 9 or not isinstance(node.args[at], (list, tuple))


def _autocast_dtype(x: Tensor) -> torch.dtype | None:
    device = x.device.type
    enabled = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if enabled else None
