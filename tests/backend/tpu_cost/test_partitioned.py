"""A GPT's training step over the chips of a slice, as libtpu compiles it: no TPU is needed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import torch_models
from xla_dynamo.backend.tpu_cost.partitioned import PartitionedStep, analyze_partitioned_step
from xla_dynamo.errors import CompileError


def spec(name: str, parameter: Tensor) -> tuple[str | None, ...]:
    """Layers of attention and wide ones in pairs: split by rows, then by columns."""
    if re.search(r"(qkv|up)\.(weight|bias)$", name):
        return ("model", *[None] * (parameter.dim() - 1))
    if re.search(r"(out|down)\.weight$", name):
        return (None, "model")
    return (None,) * parameter.dim()


def step(data: int, model: int, topology: str, **sizes: int) -> PartitionedStep:
    gpt, inputs = torch_models.gpt(batch=2 * data, heads=16, **sizes).build()
    return analyze_partitioned_step(
        gpt,
        inputs,
        mesh={"data": data, "model": model},
        parameters=spec,
        batch=("data",),
        topology_name=topology,
        matmul_precision="medium",
    )


def bytes_of(chips: int, width: int, layers: int, others: int) -> float:
    """Of parameters and momenta on a chip: 12 width^2 weights a layer are split."""
    return 2 * 4 * (12 * width * width * layers / chips + others)


def check_collectives(found: PartitionedStep) -> None:
    """No parameter is gathered. What q, k and v of one product are is exchanged among chips."""
    assert set(found.collectives) <= {"all-reduce", "all-to-all", "collective-permute"}
    assert found.collectives["all-reduce"] > 0


@pytest.mark.tpu
def test_a_step_on_sixteen_chips() -> None:
    found = step(4, 4, "v5e:4x4", layers=1, width=256, vocabulary=512, length=64)
    check_collectives(found)
    others = 512 * 256 + 64 * 256 + 13 * 256  # embeddings, norms, biases
    assert 0.95 < found.chip.arguments / bytes_of(4, 256, 1, others) < 1.1
    assert found.chip.outputs - found.chip.aliased < 2**12  # all but the loss is updated in place
    assert not re.search(r"f32\[(768,256|1024,256|256,1024)\]", found.hlo)


@pytest.mark.tpu
@pytest.mark.slow
def test_a_step_on_256_chips() -> None:
    found = step(16, 16, "v5e:16x16", layers=2, width=512, vocabulary=1024, length=128)
    check_collectives(found)
    others = 1024 * 512 + 128 * 512 + 2 * 13 * 512
    assert 0.95 < found.chip.arguments / bytes_of(16, 512, 2, others) < 1.1
    assert not re.search(r"f32\[(1536,512|2048,512|512,2048)\]", found.hlo)


@pytest.mark.tpu
def test_a_mesh_has_all_chips() -> None:
    layer: Any = torch.nn.Linear(2, 1)
    with pytest.raises(CompileError, match="has not the 16"):
        analyze_partitioned_step(
            layer, [torch.ones(1, 2)], mesh={"data": 4}, parameters=spec, batch=("data",)
        )
