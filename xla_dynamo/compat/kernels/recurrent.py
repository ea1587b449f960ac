"""torch.lstm, torch.gru and torch.rnn_* on the device: one op for each layer and direction.

PyTorch unrolls them, with several ops for each time step. Padded sequences take the functions that
torch.compile takes. Packed ones become padded ones whose lengths are data, of a time that is a
power of two, so that one program serves batches of many lengths; what is computed beyond the end of
a sequence is in no result, and its gradients are zero.

As in cuDNN's layers, gradients cannot be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from xla_dynamo.backend.ops.packed import pack_rows, pad_rows
from xla_dynamo.backend.ops.recurrent import gru_layer, lstm_layer, rnn_layer
from xla_dynamo.backend.passes.dynamo.rnn_layers import REPLACEMENTS, Stack, prepared

from .composites import is_traced

aten = torch.ops.aten

_LAYERS: dict[str, tuple[Callable[..., tuple[Tensor, ...]], Callable[..., Any], tuple]] = {
    "lstm": (torch.lstm, lstm_layer, ()),
    "gru": (torch.gru, gru_layer, ()),
    "rnn_tanh": (torch.rnn_tanh, rnn_layer, (False,)),
    "rnn_relu": (torch.rnn_relu, rnn_layer, (True,)),
}
# A gate's input at which its sigmoid is 0 or 1, in every dtype.
_CLOSED = 1e4
_LENGTHS = "xla_lengths"  # an attribute of a batch's sizes


def register_recurrent(library: torch.library.Library) -> None:
    """Register the kernels for dispatch key AutogradXLA."""
    for name, (function, op, flags) in _LAYERS.items():
        packet = getattr(aten, name)
        library.impl(f"{name}.input", _kernel(packet.input, REPLACEMENTS[function]))
        library.impl(f"{name}.data", _kernel(packet.data, _packed(op, *flags)))
    library.impl("_pack_padded_sequence", _pack_padded_sequence)
    library.impl("_pad_packed_sequence", _pad_packed_sequence)


def _kernel(op: Any, function: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Any]:
    def kernel(x: Tensor, *args: Any) -> Any:
        if is_traced(x) or x.is_complex():
            return op.decompose(x, *args)
        return function(x, *args)

    return kernel


def _pack_padded_sequence(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Eager checks `lengths`, and counts."""
    steps = x.transpose(0, 1) if batch_first else x
    lengths = lengths.to("cpu", torch.int64)
    blank = torch.empty(steps.shape[:2], dtype=torch.bool, device="cpu")
    rows, sizes = aten._pack_padded_sequence(blank, lengths, False)
    return pack_rows(steps, _on_device(sizes, x.device), len(rows)), sizes


def _pad_packed_sequence(
    data: Tensor, sizes: Tensor, batch_first: bool, value: float, total_length: int = 0
) -> tuple[Tensor, Tensor]:
    steps = len(sizes)
    if total_length > 0:
        if total_length < steps:
            raise RuntimeError(
                "Expected total_length to be at least the length of the longest sequence in "
                f"input, but got total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    padded = pad_rows(data, _on_device(sizes, data.device), steps, float(value))
    return padded.transpose(0, 1) if batch_first else padded, _lengths(sizes)


def _lengths(sizes: Tensor) -> Tensor:
    """How long each sequence of a batch is, by how many sequences have each time step."""
    return (sizes[:, None] > torch.arange(int(sizes[0]), device="cpu")).sum(0)


def _on_device(sizes: Tensor, device: torch.device) -> Tensor:
    """The lengths as one tensor of the device for all that is done with one packed batch."""
    known = getattr(sizes, _LENGTHS, None)
    if known is None or known.device != device:
        known = _lengths(sizes).to(device)
        setattr(sizes, _LENGTHS, known)
    return known


def _packed(op: Callable[..., tuple[Tensor, ...]], *flags: bool) -> Callable[..., Any]:
    """The layers on packed rows."""

    def run(
        data: Tensor, sizes: Tensor, hx: Any, params: Sequence[Tensor], *options: Any
    ) -> tuple[Tensor, ...]:
        stack = Stack(params, *options, batch_first=False)
        steps = 1 << (len(sizes) - 1).bit_length()
        lengths = _on_device(sizes, data.device)
        padded = pad_rows(data, lengths, steps, 0.0)
        x, states, stack = prepared(op, padded, hx, stack)
        time = torch.arange(steps, device=x.device)[:, None, None]
        ended = time >= lengths[:, None]
        turned = torch.where(ended, time, lengths[:, None] - 1 - time)
        last = (lengths - 1)[None, :, None]

        def layer(x: Tensor, at: int, reverse: bool) -> tuple[Tensor, ...]:
            weights = list(stack.weights(at))
            x = _gathered(x, turned) if reverse else x
            if op is lstm_layer:
                x, weights[0] = _keeping_cells(x, weights[0], ended)
            own = [state[at] for state in states]
            used = weights[: 5 if op is lstm_layer else 4]
            out, _, *cells = op(x, *own, *used, *flags, False)[: 1 + len(states)]
            hidden = _gathered(out, last)[0]
            return _gathered(out, turned) if reverse else out, hidden, *cells

        out, *finals = stack.run(x, layer)
        return pack_rows(out, lengths, data.shape[0]), *finals

    return run


def _gathered(x: Tensor, steps: Tensor) -> Tensor:
    """Of each sequence of `x`, [time, batch, features], the given steps, [n, batch, 1]."""
    return x.gather(0, steps.expand(-1, -1, x.shape[2]))


def _keeping_cells(x: Tensor, w_ih: Any, ended: Tensor) -> tuple[Tensor, Tensor]:
    """An input feature by which an LSTM's cell state stays what it is after the end.

    It closes the input gate and opens the forget gate: c * 1 + g * 0, exactly.
    """
    rows = w_ih.shape[0] // 4
    gates = torch.zeros(4, rows, 1, dtype=w_ih.dtype, device=w_ih.device)
    gates[0], gates[1] = -_CLOSED, _CLOSED
    x = torch.cat([x, ended.to(x.dtype)], -1)
    return x, torch.cat([w_ih, gates.view(-1, 1)], 1)
