"""Transposes before products: where they are made, and that values stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from tests.backend.graphs import ops, traced
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.backend.passes.lowering.transposed_factors import transpose_before_products

_BARRIER = "xla_dynamo.optimization_barrier.default"


def rewritten(function: Callable[..., Tensor], *inputs: Tensor, platform: str = "cpu") -> bool:
    """Whether the pass changes a function, whose values stay."""
    module = traced(function, *inputs)
    context = Context("test", WayIn.COMPILE, Target(platform))
    changed = transpose_before_products(module.graph, context)
    (result,) = GraphModule(module, module.graph)(*inputs)
    torch.testing.assert_close(result, function(*inputs))
    assert changed is (_BARRIER in ops(module.graph))
    return changed


def _product(left: Tensor, right: Tensor) -> Tensor:
    return left.t() @ right


def factors(
    rows: int, left: int, right: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    return torch.ones(rows, left, dtype=dtype), torch.ones(rows, right, dtype=dtype)


@pytest.mark.parametrize("swap", [lambda x: x.t(), lambda x: x.permute(1, 0)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_gradient_of_a_weight(swap: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    assert rewritten(lambda x, y: swap(x) @ y, *factors(256, 128, 96, dtype))


def test_others_stay() -> None:
    assert not rewritten(_product, *factors(32, 64, 64))
    assert not rewritten(_product, *factors(4096, 16, 64))
    assert not rewritten(_product, *factors(4096, 64, 16))
    assert not rewritten(_product, *factors(256, 128, 96, torch.int32))
    assert not rewritten(lambda x, y: x @ y.t(), torch.ones(128, 256), torch.ones(96, 256))
    assert not rewritten(_product, *factors(256, 128, 96), platform="tpu")
    assert not rewritten(_product, *factors(256, 128, 96), platform="cuda")
