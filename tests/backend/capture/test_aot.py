"""The graphs that AOTAutograd gives, and what is known about them; they run in eager here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from xla_dynamo.backend.capture import aot
from xla_dynamo.backend.capture.aot import GraphInfo
from xla_dynamo.backend.graph import fx

pytestmark = pytest.mark.spine


class Seen:
    """A backend for torch.compile that keeps the graphs and runs them in eager."""

    def __init__(self) -> None:
        self.graphs: dict[str, GraphModule] = {}
        self.infos: dict[str, GraphInfo] = {}
        self.joint: list[tuple[int, int | None]] = []

    def __call__(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return aot.compile(
            module, inputs, compiler=self._compile, decompositions={}, joint_pass=self._joint
        )

    def _compile(self, graph: GraphModule, info: GraphInfo) -> Callable[[list[Any]], Any]:
        kind = info.name.split()[-1]
        self.graphs[kind], self.infos[kind] = graph, info
        return lambda arguments: graph(*arguments)

    def _joint(self, graph: GraphModule, forward_outputs: int | None) -> None:
        self.joint.append((len(fx.results(graph.graph)), forward_outputs))


def test_inference() -> None:
    seen = Seen()
    compiled = torch.compile(lambda x, y: (x + y, x.t()), backend=seen)
    x, y = torch.randn(2, 3), torch.randn(3)
    torch.testing.assert_close(compiled(x, y)[0], x + y)
    assert seen.infos == {
        "inference": GraphInfo(
            name="0/0 inference",
            reason="first call",
            argument_names=("L['x']", "L['y']"),
            static=frozenset(),
            visible=2,
            results=("add", "t"),
            is_inference=True,
        )
    }
    assert seen.joint == [(2, None)]
    placeholders = fx.placeholders(seen.graphs["inference"].graph)
    assert [node.meta["argument"] for node in placeholders] == [True, True]


def test_forward_and_backward() -> None:
    seen = Seen()
    layer = nn.Linear(3, 4)
    x = torch.randn(2, 3)
    torch.compile(lambda x: layer(x).sin(), backend=seen)(x).sum().backward()
    gradient = layer.weight.grad
    layer.zero_grad()
    layer(x).sin().sum().backward()
    torch.testing.assert_close(gradient, layer.weight.grad)
    forward, backward = seen.infos["forward"], seen.infos["backward"]
    assert (forward.name, backward.name) == ("0/0 forward", "0/0 backward")
    assert forward.visible == 1
    assert len(fx.results(seen.graphs["forward"].graph)) > 1  # and what is saved
    named = [n for i, n in enumerate(forward.argument_names) if i in forward.static]
    assert [name.split("['")[-1][:-2] for name in named] == ["weight", "bias"]
    assert (forward.no_output_aliasing, backward.no_output_aliasing) == (False, True)
    assert backward.visible == len(fx.results(seen.graphs["backward"].graph))
    ((results, forward_outputs),) = seen.joint
    # The result, and gradients of the weight, the bias and the input, which is None.
    assert (results, forward_outputs) == (4, 1)


def test_a_capture_says_why_it_came() -> None:
    seen = Seen()
    compiled = torch.compile(lambda x, n: x * n, backend=seen, dynamic=False)
    compiled(torch.ones(3), 2)
    compiled(torch.ones(4), 2)
    assert seen.infos["inference"].reason == "L['x'] dimension 0 changed from 3 to 4"
    assert seen.infos["inference"].name == "0/1 inference"


def test_symbolic_sizes_have_names() -> None:
    seen = Seen()
    torch.compile(lambda x: x * x.shape[0], backend=seen, dynamic=True)(torch.ones(3, 4))
    names = seen.infos["inference"].argument_names
    assert names == ("L['x'] dimension 0", "L['x'] dimension 1", "L['x']")


def test_an_exported_function_may_differentiate() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            loss = (leaf * y).sin_().sum()
        return loss.detach(), *torch.autograd.grad(loss, [leaf])

    x, y = torch.randn(4, 3), torch.randn(3)
    module = aot.export(function, (x, y), {})
    assert all("sin_" not in str(node.target) for node in module.graph.nodes)
    torch.testing.assert_close(tuple(module(x, y)), function(x, y))
