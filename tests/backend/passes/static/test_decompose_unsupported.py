"""Where a rule declines, PyTorch's decomposition takes over; integers stay with eager."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import xla_dynamo
from xla_dynamo.backend.lowering import registry
from xla_dynamo.backend.passes.static.decompose_unsupported import decompose, replace

aten = torch.ops.aten
pytestmark = pytest.mark.spine


def test_a_declined_op_is_decomposed(monkeypatch: pytest.MonkeyPatch) -> None:
    def decline(*arguments: object, **keywords: object) -> None:
        raise registry.Unsupported("declined for the test")

    rule = registry.Rule(decline)
    monkeypatch.setitem(registry.RULES, aten.logit.default, rule)
    x = torch.rand(7, 11, dtype=torch.float64)  # a shape of its own: bodies are memoized
    got = torch.compile(lambda x: torch.logit(x, 0.1) * 2, backend="xla")(x)
    torch.testing.assert_close(got, torch.logit(x, 0.1) * 2)
    assert xla_dynamo.counters() == {}


def _node(function: object, *arguments: torch.Tensor) -> torch.fx.Node:
    graph = make_fx(function, tracing_mode="fake")(*arguments).graph  # type: ignore[arg-type]
    return next(node for node in graph.nodes if node.op == "call_function")


def test_several_outputs_are_replaced() -> None:
    node = _node(lambda x: aten.aminmax.default(x), torch.randn(3, 4))
    graph = node.graph
    assert decompose(graph, node)
    module = torch.fx.GraphModule({}, graph)
    x = torch.randn(3, 4)
    assert module(x) == tuple(torch.aminmax(x))


def test_integers_keep_eagers_kernels() -> None:
    x = torch.arange(6, dtype=torch.uint8)
    node = _node(lambda x: aten.floor_divide.default(x, x), x)
    assert not decompose(node.graph, node)
    assert node.target is aten.floor_divide.default


def test_an_op_without_decomposition_stays() -> None:
    node = _node(lambda x: aten.sort.default(x), torch.randn(3))
    assert not decompose(node.graph, node)


def test_ops_of_a_library_of_pytorch_programs_are_traced() -> None:
    import torch.ao.quantization.fx._decomposed

    ops = torch.ops.quantized_decomposed
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 2, 3])

    def function(x: torch.Tensor) -> torch.Tensor:
        q = ops.quantize_per_tensor.default(x, 0.05, 3, -128, 127, torch.int8)
        y = ops.dequantize_per_tensor.default(q, 0.05, 3, -128, 127, torch.int8)
        q = ops.quantize_per_channel.default(y, scales, zeros, 1, 0, 255, torch.uint8)
        return ops.dequantize_per_channel.default(q, scales, zeros, 1, 0, 255, torch.uint8)

    x = torch.randn(5, 3) * 4
    torch.testing.assert_close(torch.compile(function, backend="xla")(x), function(x))
    assert xla_dynamo.counters() == {}


def test_prims_without_a_rule_are_traced() -> None:
    prims = torch.ops.prims

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # collapse is written as a copy into an empty tensor
        return prims.prod(x, (0, 1)), prims.erfcx(x), prims.collapse(x, 0, 1)

    x = torch.rand(3, 4)
    torch.testing.assert_close(torch.compile(function, backend="xla")(x), function(x))
    assert xla_dynamo.counters() == {}


def test_views_that_a_definition_makes_in_place_are_views() -> None:
    def definition(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).unsqueeze_(0).squeeze_().t_()
        return y.transpose_(0, 1).swapaxes_(0, 1) + y

    x = torch.arange(6.0).reshape(2, 3)
    node = _node(lambda x: aten.neg.default(x), x)
    assert replace(node.graph, node, definition)
    calls = node.graph.find_nodes(op="call_function", target=aten.squeeze.default)
    assert len(calls) == 1
    assert not any("_." in str(inner.target) for inner in node.graph.nodes)
    assert torch.equal(torch.fx.GraphModule({}, node.graph)(x), definition(x))
