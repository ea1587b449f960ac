"""Transposes as permutations: which remain, and that values stay."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.fx import GraphModule

import xla_dynamo
from tests.backend.graphs import context, ops, traced
from xla_dynamo.backend.passes.joint.permutations import compose_permutations


def rewritten(function: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> list[str]:
    """The ops of a function after the pass, which changes neither values nor strides."""
    x = torch.randn(shape)
    module = traced(function, x)
    before = ops(module.graph)
    changed = compose_permutations(module.graph, context())
    (found,) = GraphModule(module, module.graph)(x)
    want = function(x)
    torch.testing.assert_close(found, want)
    assert found.stride() == want.stride()
    assert changed is (ops(module.graph) != before)
    return ops(module.graph)


def test_a_transpose() -> None:
    assert rewritten(lambda x: x.transpose(-1, 0).exp(), (2, 3, 4)) == [
        "permute.default",
        "exp.default",
    ]
    assert rewritten(lambda x: x.transpose(0, 0).exp(), ()) == ["exp.default"]


def test_one_of_another() -> None:
    found = rewritten(lambda x: x.permute(1, 2, 0).transpose(0, 1).exp(), (2, 3, 4))
    assert found == ["permute.default", "exp.default"]
    found = rewritten(lambda x: x.t().t().exp(), (2, 3))
    assert found == ["exp.default"]
    found = rewritten(lambda x: x.permute(2, 0, 1).permute(1, 2, 0).exp(), (2, 3, 4))
    assert found == ["exp.default"]


def test_others_stay() -> None:
    assert rewritten(lambda x: x.t().exp(), (2, 3)) == ["t.default", "exp.default"]
    found = rewritten(lambda x: x.permute(1, 0, 2).exp(), (2, 3, 4))
    assert found == ["permute.default", "exp.default"]


def test_a_result_stays_another_tensor_than_its_source() -> None:
    assert rewritten(lambda x: x.transpose(0, 1).transpose(0, 1), (2, 3)) == ["permute.default"]
    assert rewritten(lambda x: x.exp().t().t(), (2, 3)) == ["exp.default"]


def test_backward_permutes_what_is_saved() -> None:
    """Forward returns the product's one factor, once."""

    def products(x: Tensor) -> Tensor:
        y = x.exp()
        return torch.bmm(y, y.mT)

    x = torch.randn(3, 4, 5, requires_grad=True)
    before = len(xla_dynamo.compiles())
    torch.compile(products, backend="xla")(x).sum().backward()
    _, backward = xla_dynamo.compiles()[before:]
    assert backward.shapes == ("float32[3, 4, 5]", "float32[3, 4, 4]")
