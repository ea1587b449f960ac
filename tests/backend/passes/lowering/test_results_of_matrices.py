"""Results that are matrices of 1x1 weights pass one dimension, on a TPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.backend.graphs import ops, traced
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.backend.passes.lowering.results_of_matrices import return_matrices_as_rows

BARRIER = "xla_dynamo.optimization_barrier.default"
WEIGHT = (256, 512, 1, 1)


def changed(shape: tuple[int, ...], dtype: torch.dtype, platform: str, partitioned: bool) -> int:
    def step(weight: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new = weight - x
        return weight, new, new.sum()

    inputs = torch.ones(shape, dtype=dtype), torch.ones(shape, dtype=dtype)
    module = traced(step, *inputs)
    context = Context("test", WayIn.COMPILE, Target(platform), partitioned=partitioned)
    is_changed = return_matrices_as_rows(module.graph, context)
    barriers = ops(module.graph).count(BARRIER)
    assert is_changed is (barriers > 0)
    module.recompile()
    for got, expected in zip(module(*inputs), step(*inputs), strict=True):
        assert torch.equal(got, expected)
    return barriers


def test_a_new_weight() -> None:
    assert changed(WEIGHT, torch.float32, "tpu", partitioned=False) == 1
    assert changed((512, 256, 1), torch.float32, "tpu", partitioned=False) == 1


@pytest.mark.parametrize(
    "shape", [(256, 512, 1, 3), (256, 511, 1, 1), (256, 512), (1, 2**17, 1, 1), (16, 128, 1, 1)]
)
def test_other_shapes_stay(shape: tuple[int, ...]) -> None:
    assert changed(shape, torch.float32, "tpu", partitioned=False) == 0


def test_other_dtypes_platforms_and_partitioned_programs_stay() -> None:
    assert changed(WEIGHT, torch.bfloat16, "tpu", partitioned=False) == 0
    assert changed(WEIGHT, torch.float32, "cpu", partitioned=False) == 0
    assert changed(WEIGHT, torch.float32, "tpu", partitioned=True) == 0
