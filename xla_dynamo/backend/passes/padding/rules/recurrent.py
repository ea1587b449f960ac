"""Recurrent layers over a padded batch. Time is not padded: states would go on changing."""

from __future__ import annotations

from typing import Any

from xla_dynamo.backend.passes.padding.layouts import Dim, plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder, dims_of
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused


def _refuse_time(x: Padded) -> None:
    if x.padded_in([0]):
        raise Refused("states would go on changing in the padding", [x.dims[0].size])


@pads(
    "xla_dynamo.lstm_layer.default", "xla_dynamo.gru_layer.default", "xla_dynamo.rnn_layer.default"
)
def layer(p: Padder, x: Padded, *rest: Any) -> Any:
    """Sequences of a batch are on their own."""
    _refuse_time(x)
    batch = p.plainly(x, [1]).dims[1]
    given = [_in_batch(p, each) for each in (x, *rest)]
    made = p.again(*given)
    return p.give_all(made, [_dims(out, batch) for out in p.outs()])


def _in_batch(p: Padder, x: Any) -> Any:
    return p.plainly(x) if isinstance(x, Padded) else x


def _dims(out: Any, batch: Dim) -> list[Dim]:
    """[time, batch, features], or [batch, features]."""
    return [*map(plain, out[:-2]), batch, plain(out[-1])]


@pads(
    "xla_dynamo.lstm_layer_backward.default",
    *("xla_dynamo.gru_layer_backward.default", "xla_dynamo.rnn_layer_backward.default"),
)
def layer_backward(p: Padder, *args: Any) -> Any:
    """The gradients of weights are sums over the batch: what is padding is zero."""
    given = []
    for each in args:
        x = _in_batch(p, each)
        if isinstance(x, Padded) and len(x.dims) > 1:
            x = p.masked(x, [len(x.dims) - 2], 0)
            if len(x.dims) == 3:
                _refuse_time(x)
        given.append(x)
    made = p.again(*given)
    return p.give_all(made, [None if out is None else dims_of(out) for out in p.outs()])
