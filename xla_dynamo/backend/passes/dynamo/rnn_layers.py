"""Replace nn.LSTM, nn.GRU and nn.RNN in Dynamo's graph, before AOTAutograd unrolls them.

Dynamo captures these modules (see capture/recurrent_modules.py) as one call of torch.lstm,
torch.gru, torch.rnn_tanh or torch.rnn_relu. `use_rnn_layers` puts a function in its place that
takes the same arguments and calls the ops of ops/recurrent.py, so that AOTAutograd records two
nodes per layer and direction: one for forward, one for backward. Calls with packed sequences stay
as they are. The lazy device has the same functions as kernels (compat/kernels/recurrent.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.nn import functional

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.ops.recurrent import gru_layer, lstm_layer, rnn_layer
from xla_dynamo.backend.passes.contract import Context


def use_rnn_layers(graph: Graph, context: Context) -> bool:
    """Exchange the recurrent calls of Dynamo's graph for those of this module."""
    found = [n for n in fx.calls(graph) if n.target in REPLACEMENTS and not _is_packed(n)]
    for node in found:
        node.target = REPLACEMENTS[node.target]
    return bool(found)


def _layers(op: Callable[..., tuple[Tensor, ...]], *flags: bool) -> Callable[..., Any]:
    """torch.lstm, torch.gru, ... of a padded sequence, as one `op` per layer and direction."""

    def run(input: Tensor, hx: Any, params: Sequence[Tensor], *options: Any) -> tuple[Tensor, ...]:
        input, states, stack = prepared(op, input, hx, Stack(params, *options))

        def layer(x: Tensor, at: int, reverse: bool) -> tuple[Tensor, ...]:
            weights = stack.weights(at)[: 5 if op is lstm_layer else 4]
            own = [state[at] for state in states]
            return op(x, *own, *weights, *flags, reverse)[: 1 + len(states)]

        return stack.run(input, layer)

    return run


def prepared(
    op: Callable[..., tuple[Tensor, ...]], input: Tensor, hx: Any, stack: Stack
) -> tuple[Tensor, list[Tensor], Stack]:
    """Input, initial states and layers in the dtypes in which eager computes under autocast."""
    states = list(hx) if op is lstm_layer else [hx]
    dtype = _autocast_dtype(input)
    if dtype is None:
        return input, states, stack
    # Eager's GRU has the hidden state's dtype.
    dtype = hx.dtype if op is gru_layer else dtype
    # Eager's LSTM keeps the cell state wide in layers with a projection, and only there.
    narrow = 1 if stack.weights(0)[-1] is not None else 2
    states[:narrow] = [state.to(dtype) for state in states[:narrow]]
    return input.to(dtype), states, stack.to(dtype)


@dataclass(frozen=True)
class Stack:
    """The layers of a module: PyTorch's flat list of parameters, then its other arguments."""

    params: Sequence[Tensor]
    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool

    def to(self, dtype: torch.dtype) -> Stack:
        return replace(self, params=[param.to(dtype) for param in self.params])

    def weights(self, at: int) -> tuple[Tensor | None, ...]:
        """w_ih, w_hh, b_ih, b_hh and w_hr (an LSTM's projection) of one layer and direction."""
        each = len(self.params) // (self.num_layers * (1 + self.bidirectional))
        own: list[Tensor | None] = list(self.params[at * each : (at + 1) * each])
        if not self.has_biases:
            own[2:2] = [None, None]
        return *own, *[None] * (5 - len(own))

    def run(
        self, x: Tensor, layer: Callable[[Tensor, int, bool], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """The last layer's output, and the final states of all layers, stacked."""
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
        return out, *(torch.stack(states) for states in zip(*finals, strict=True))


REPLACEMENTS: dict[object, Callable[..., tuple[Tensor, ...]]] = {
    torch.lstm: _layers(lstm_layer),
    torch.gru: _layers(gru_layer),
    torch.rnn_tanh: _layers(rnn_layer, False),
    torch.rnn_relu: _layers(rnn_layer, True),
}


def _is_packed(node: Node) -> bool:
    """Packed calls are (data, batch_sizes, hx, params, ...), with a tensor of batch sizes."""
    at = 1 if node.target == torch.lstm else 2
    return node.kwargs != {} or len(node.args) != 9 or not isinstance(node.args[at], (list, tuple))


def _autocast_dtype(x: Tensor) -> torch.dtype | None:
    device = x.device.type
    enabled = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if enabled else None
