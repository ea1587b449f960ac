"""Gradients of weights over batch and time: what is rewritten, and that values stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from tests.backend.graphs import ops, traced
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.backend.passes.lowering.contract_rows import contract_rows


def rewritten(function: Callable[..., Tensor], *inputs: Tensor, platform: str = "tpu") -> list[str]:
    """The ops of a function after the pass, which changes no value."""
    module = traced(function, *inputs)
    changed = contract_rows(module.graph, Context("test", WayIn.COMPILE, Target(platform)))
    (result,) = GraphModule(module, module.graph)(*inputs)
    torch.testing.assert_close(result, function(*inputs))
    assert changed is ("xla_dynamo.rows_product.default" in ops(module.graph))
    return ops(module.graph)


X, Y = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 3, 5, dtype=torch.float64)


@pytest.mark.parametrize("swap", [lambda x: x.t(), lambda x: x.permute(1, 0)])
def test_both_are_flattened(swap: Callable[[Tensor], Tensor]) -> None:
    found = rewritten(lambda x, y: swap(x.view(6, 4)) @ y.view(6, 5), X, Y)
    assert found == ["xla_dynamo.rows_product.default"]


def test_one_is_split_by_heads() -> None:
    heads, product = torch.randn(2, 3, 2, 2).double(), "xla_dynamo.rows_product.default"
    found = rewritten(lambda x, y: x.view(6, 4).t() @ y.view(6, 5), heads, Y)
    assert found == ["view.default", product]


def test_others_stay() -> None:
    """One that comes in rows, for example."""
    rows = torch.randn(6, 5).double()
    assert "mm.default" in rewritten(lambda x, y: x.view(6, 4).t() @ y, X, rows)
    assert "mm.default" in rewritten(lambda x, y: x.t() @ y, torch.randn(6, 4), torch.randn(6, 5))
    assert "mm.default" in rewritten(lambda x, y: x.view(6, 4) @ y, X, torch.randn(4, 5).double())
    flat = rewritten(lambda x, y: x.view(6, 4).t() @ y.view(6, 5), X, Y, platform="cpu")
    assert "mm.default" in flat
