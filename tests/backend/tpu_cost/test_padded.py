"""What padding costs on a TPU: the program of a bucket against the program of its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
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
        output_plan.plan(compiled, 0, request.visible, request.no_output_aliasing)
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


@pytest.mark.slow
def test_padding_a_block_of_gpt_costs_little() -> None:
    model = Decoder(256)
    inputs = torch.randint(0, 50, (8, 128)), torch.randint(0, 50, (8, 128))
    static = _of_tpu(model, inputs)
    for x in inputs:
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(x, 1)
    padded = _of_tpu(model, inputs, bucket="powers_of_two")
    ratios = [ours / theirs for ours, theirs in zip(padded, static, strict=True)]
    assert max(ratios) <= 1.03, ratios
