"""Weights of 1x1 convolutions are cast as matrices, on a TPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.backend.graphs import ops, traced
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.backend.passes.lowering.casts_of_matrices import cast_as_matrices

BARRIER = "xla_dynamo.optimization_barrier.default"


def mixed(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x.bfloat16(), weight.bfloat16())


def wide(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x.double(), weight.double())


def cast_elsewhere(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x.bfloat16(), (weight * 2).bfloat16())


def topped(x: Tensor, weight: Tensor) -> Tensor:
    """The weight is read by an op of several results, too."""
    return F.conv2d(x.bfloat16(), weight.bfloat16()) + weight.max(1, keepdim=True)[0].mean()


@pytest.mark.parametrize(
    ("function", "size", "platform", "changes"),
    [
        (mixed, 1, "tpu", True),
        (topped, 1, "tpu", True),
        (mixed, 1, "cpu", False),
        (mixed, 1, "gpu", False),
        (mixed, 3, "tpu", False),
        (wide, 1, "tpu", False),
        (cast_elsewhere, 1, "tpu", False),
    ],
)
def test_casts(function, size: int, platform: str, changes: bool) -> None:
    inputs = torch.randn(2, 3, 4, 4), torch.randn(5, 3, size, size)
    module = traced(function, *inputs)
    context = Context("test", WayIn.COMPILE, Target(platform))
    assert cast_as_matrices(module.graph, context) is changes
    assert ops(module.graph).count(BARRIER) == changes
    casts = module.graph.find_nodes(
        op="call_function", target=torch.ops.aten._to_copy.default, sort=True
    )
    assert len(casts) == 2
    assert casts[1].meta["val"].dim() == (2 if changes else 4)
    module.recompile()
    assert torch.equal(module(*inputs)[0], function(*inputs))
