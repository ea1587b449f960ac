"""What padding costs on a TPU: the program of a bucket against the program of its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Graph, GraphModule

from tests.models.test_sizes_that_change import Decoder
from xla_dynamo.backend.executable import output_plan, static_program
from xla_dynamo.backend.executable.compile import lower
from xla_dynamo.backend.executable.request import Request
from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.runtime import topology

aten = torch.ops.aten


def _of_tpu(
    run: Callable[..., Tensor], inputs: tuple[Tensor, ...], **options: Any
) -> tuple[float, float]:
    """FLOPs and bytes of forward and backward, which run in eager."""
    found: list[topology.Analysis] = []
    context = Request.context

    def collect(graph: Graph, request: Request) -> Callable[[list[Any]], Any]:
        eager, compiled = fx.copy(graph), fx.copy(graph)
        output_plan.plan(compiled, 0, request.visible, request.alone(len(fx.results(compiled))))
        edit.drop_unused(compiled)
        lowered = lower(compiled, request.context())
        found.append(topology.compile(lowered.module, "v5e:2x2")[0])
        edit.exchange_targets(eager, {aten.view.default: aten.reshape.default})
        module = GraphModule({}, eager)
        return lambda arguments: module(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_program, "_or_eager", collect)
        patch.setattr(Request, "context", lambda self, _=None: context(self, "tpu"))
        torch.compiler.reset()
        options = {"matmul_precision": "medium", **options}
        dynamic = None if "bucket" in options else False
        torch.compile(run, backend="xla", dynamic=dynamic, options=options)(*inputs).backward()
    assert len(found) == 2
    return sum(each.flops for each in found), sum(each.bytes_accessed for each in found)


def _ratios(run: Callable[..., Tensor], inputs: tuple[Tensor, ...], *dims: int) -> list[float]:
    """What the program of a bucket needs at its size, of what that of the size alone does."""
    static = _of_tpu(run, inputs)
    for x in inputs:
        for d in dims:
            torch._dynamo.mark_dynamic(x, d)
    padded = _of_tpu(run, inputs, bucket="powers_of_two")
    return [ours / theirs for ours, theirs in zip(padded, static, strict=True)]


@pytest.mark.slow
def test_padding_a_block_of_gpt_costs_little() -> None:
    inputs = torch.randint(0, 50, (8, 128)), torch.randint(0, 50, (8, 128))
    ratios = _ratios(Decoder(256), inputs, 0, 1)
    assert max(ratios) <= 1.03, ratios


class Images(nn.Module):
    """A convnet with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(x), y)


@pytest.mark.slow
def test_padding_a_convnet_costs_little() -> None:
    inputs = torch.randn(32, 3, 16, 16), torch.randint(0, 10, (32,))
    ratios = _ratios(Images(), inputs, 0)
    assert max(ratios) <= 1.03, ratios
