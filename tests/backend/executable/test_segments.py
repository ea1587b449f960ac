"""Values that reach eager ops have the strides that were traced."""

from __future__ import annotations

import pytest
import torch

import xla_dynamo
from xla_dynamo.backend.executable import static_program
from xla_dynamo.backend.executable.segments import as_declared
from xla_dynamo.errors import CompileError


def test_strides_are_restored() -> None:
    declared = torch.empty(4, 3).t()
    restored = as_declared(torch.arange(12.0).reshape(3, 4), declared)
    assert restored.stride() == (1, 3)
    assert torch.equal(restored, torch.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize("value", [3, None, torch.ones(2, 2), torch.eye(3).to_sparse()])
def test_what_needs_no_change_is_not_changed(value: object) -> None:
    assert as_declared(value, torch.empty(2, 2)) is value


def test_a_graph_that_does_not_compile_runs_in_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_launch = static_program.compile_launch

    def refuse_backward(graph: object, request: static_program.Request) -> object:
        if "backward" in request.name:
            raise CompileError("refused for the test")
        return compile_launch(graph, request)  # type: ignore[arg-type]

    monkeypatch.setattr(static_program, "compile_launch", refuse_backward)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).double()
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    layer(x).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    loss = torch.compile(layer, backend="xla")(x).square().sum()
    with pytest.warns(xla_dynamo.FallbackWarning, match="refused for the test"):
        loss.backward()
    for parameter, gradient in zip(layer.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    assert xla_dynamo.counters() == {"fallback.graph": 1}
