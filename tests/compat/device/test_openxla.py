"""PyTorch's backends "openxla" and "openxla_eval" take LSTM, GRU and RNN as "xla" does."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported

import xla_dynamo
from tests.like_eager.lazy import XLA, assert_same
from tests.programs import run

MODULE = "torch._dynamo.backends.torchxla"
X = torch.randn(9, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MODULES: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(4, 3, 2, bidirectional=True, dtype=torch.float64),
    "gru": lambda: nn.GRU(4, 3, dtype=torch.float64),
    "rnn": lambda: nn.RNN(4, 3, dtype=torch.float64),
}


def step(module: nn.Module, x: Tensor, backend: str | None = None) -> list[Tensor]:
    """The results, and the gradients of the first, of a whole graph."""
    called = module if backend is None else torch.compile(module, backend=backend, fullgraph=True)
    out, states = called(x)
    grads = torch.autograd.grad(out.square().sum(), list(module.parameters()))
    return [out.detach(), *(s.detach() for s in (*states,)), *grads]


def inference(module: nn.Module, x: Tensor, backend: str) -> Tensor:
    with torch.no_grad():
        return torch.compile(module, backend=backend, fullgraph=True)(x)[0]


@pytest.mark.parametrize("name", MODULES)
def test_training(name: str) -> None:
    torch.manual_seed(0)
    module = MODULES[name]()
    expected = step(module, X)
    on_device = copy.deepcopy(module).to(XLA)
    assert_same(step(on_device, X.to(XLA), "openxla"), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("backend", ["openxla", "openxla_eval"])
def test_inference_is_the_program_of_xla(backend: str) -> None:
    module = MODULES["lstm"]()
    on_device, sizes = copy.deepcopy(module).to(XLA), []
    for each in ("xla", backend):
        torch.compiler.reset()
        xla_dynamo.reset_metrics()
        actual = inference(on_device, X.to(XLA), each)
        assert_same(actual, module(X)[0].detach(), rtol=1e-10, atol=1e-10)
        sizes.append([record.nodes for record in xla_dynamo.compiles()])
    assert sizes[0] == sizes[1]


def test_other_backends_refuse_as_before() -> None:
    inference(MODULES["gru"]().to(XLA), X.to(XLA), "openxla")

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, gm: torch.fx.GraphModule, inputs: object) -> torch.fx.GraphModule:
            return gm

    for backend in ("eager", Unhashable()):
        torch.compiler.reset()
        with pytest.raises(Unsupported, match="RNN, GRU, or LSTM"):
            torch.compile(MODULES["gru"](), backend=backend, fullgraph=True)(X)


@pytest.mark.parametrize("first", ["install", "look up"])
def test_all_is_undone(first: str) -> None:
    look_up = "registry.lookup_backend('openxla')"
    program = f"""
import sys
import xla_dynamo
{"from torch._dynamo.backends import registry" if first == "look up" else ""}
before = {look_up if first == "look up" else None}
import xla_dynamo.compat
assert {first == "look up"} or "torch._dynamo" not in sys.modules
from torch._dynamo.backends import registry
from torch._dynamo.variables import builder
wrapped = {look_up}
assert hasattr(builder.VariableBuilder.wrap_module, "__wrapped__") and wrapped is not before
xla_dynamo.compat.uninstall()
assert not hasattr(builder.VariableBuilder.wrap_module, "__wrapped__")
assert {look_up} is not wrapped and {look_up} is sys.modules[{MODULE!r}].openxla
assert before in (None, {look_up})
"""
    run("-c", program, fresh=True)
