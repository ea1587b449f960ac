"""LSTM layers of a compiled model on CPU are oneDNN's, with eager's numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import xla_dynamo
from tests.backend.seen_ops import Seen

LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two layers, both directions": {"num_layers": 2, "bidirectional": True},
    "no biases": {"bias": False},
    "batch first": {"batch_first": True},
}


def _trained(function: Any, layer: nn.LSTM, x: Tensor, *states: Tensor) -> list[Tensor]:
    """What it computes, and the gradients of all that it takes."""
    inputs = [x, *states, *layer.parameters()]
    out, (h, c) = function(x, *([states] if states else []))
    grads = torch.autograd.grad(out.sin().sum() + h.cos().sum() + (c * c).sum(), inputs)
    return [out, h, c, *grads]


@pytest.mark.parametrize("name", LAYERS)
def test_training_is_that_of_eager(name: str) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(96, 128, **LAYERS[name])
    x = torch.randn(6, 16, 96, requires_grad=True)
    states = [] if name == "plain" else [_states(layer, x), _states(layer, x)]
    compiled = torch.compile(layer, backend="xla", dynamic=False)
    want = _trained(layer, layer, x, *states)
    _trained(compiled, layer, x, *states)
    with Seen() as seen:
        got = _trained(compiled, layer, x, *states)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert "xla_dynamo.lstm_layer.default" not in seen.ops
    assert xla_dynamo.counters().get("fallback.graph", 0) == 0


def _states(layer: nn.LSTM, x: Tensor) -> Tensor:
    batch = x.shape[0 if layer.batch_first else 1]
    layers = layer.num_layers * (2 if layer.bidirectional else 1)
    return torch.randn(layers, batch, layer.hidden_size, requires_grad=True)


@pytest.mark.parametrize("kernels", ["torch", "xla"])
def test_inference_equals_eager(kernels: str) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(96, 128)
    x = torch.randn(6, 16, 96)
    compiled = torch.compile(layer, backend="xla", options={"cpu_kernels": kernels})
    with torch.no_grad():
        out, (h, c) = compiled(x)
        want, (want_h, want_c) = layer(x)
    for a, b in ((out, want), (h, want_h), (c, want_c)):
        torch.testing.assert_close(a, b)
        assert kernels == "xla" or a.equal(b)


@pytest.mark.parametrize("is_trained", [False, True])
def test_operands_of_any_layout(is_trained: bool) -> None:
    """oneDNN takes memory as it lies: batches first, states and weights transposed."""
    torch.manual_seed(0)
    layer = nn.LSTM(96, 128, batch_first=True)
    for parameter in layer.parameters():
        parameter.data = parameter.data.t().contiguous().t()
    x, states = torch.randn(16, 6, 96), [torch.randn(1, 128, 16).mT for _ in range(2)]
    compiled = torch.compile(_of(layer), backend="xla")
    with torch.set_grad_enabled(is_trained):
        results = [(out, h, c) for out, (h, c) in (f(x, *states) for f in (compiled, _of(layer)))]
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)
    if is_trained:
        grads = [
            torch.autograd.grad((out.sin().mT.cos().sum(), c.sum()), [*layer.parameters()])
            for out, _, c in results
        ]
        for got, want in zip(*grads, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def _of(layer: nn.LSTM) -> Any:
    return lambda x, h, c: layer(x, (h, c))


def test_projections_and_other_dtypes_stay_with_xla() -> None:
    for layer, dtype in (
        (nn.LSTM(64, 128, proj_size=32), torch.float32),
        (nn.LSTM(64, 128).double(), torch.float64),
    ):
        x = torch.randn(8, 16, 64, dtype=dtype)
        compiled = torch.compile(layer, backend="xla")
        with torch.no_grad():
            torch.testing.assert_close(compiled(x)[0], layer(x)[0], rtol=1e-4, atol=1e-5)
