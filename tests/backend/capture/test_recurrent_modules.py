"""Recurrent modules are compiled by this backend without Dynamo's switch, and by no other."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._dynamo.exc import Unsupported

import xla_dynamo
from tests.programs import run

MODULES = [nn.LSTM(4, 3), nn.GRU(4, 3), nn.RNN(4, 3)]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: type(module).__name__)
@pytest.mark.parametrize(
    "settings", [{"backend": "xla"}, {"backend": "xla", "options": {"fallback": "error"}}], ids=str
)
def test_whole_graphs_without_the_switch(module: nn.Module, settings: dict) -> None:
    assert not torch._dynamo.config.allow_rnn
    x = torch.randn(5, 2, 4)
    compiled = torch.compile(module, fullgraph=True, **settings)
    torch.testing.assert_close(compiled(x)[0], module(x)[0])
    assert not torch._dynamo.config.allow_rnn


def test_the_backend_itself_and_modules_inside_a_function() -> None:
    inner = nn.GRU(4, 3)

    @torch.compile(backend=xla_dynamo.xla, fullgraph=True)
    def compiled(x: torch.Tensor) -> torch.Tensor:
        return inner(x.exp())[0].sum()

    x = torch.randn(5, 2, 4)
    torch.testing.assert_close(compiled(x), inner(x.exp())[0].sum())


def test_other_backends_refuse_as_before() -> None:
    module, x = nn.GRU(4, 3), torch.randn(5, 2, 4)
    torch.compile(module, backend="xla")(x)
    for backend in ("eager", lambda gm, _: gm):
        torch.compiler.reset()
        with pytest.raises(Unsupported, match="RNN, GRU, or LSTM"):
            torch.compile(module, backend=backend, fullgraph=True)(x)


def test_importing_the_package_does_not_import_dynamo() -> None:
    program = """
import sys, torch, xla_dynamo, xla_dynamo.backend
assert "torch._dynamo" not in sys.modules
assert xla_dynamo.xla is xla_dynamo.backend.xla and xla_dynamo.xla.__name__ == "xla"
assert not hasattr(xla_dynamo, "missing") and not hasattr(xla_dynamo.backend, "missing")
"""
    run("-c", program, fresh=True)
