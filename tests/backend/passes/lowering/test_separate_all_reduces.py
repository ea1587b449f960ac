"""A list of tensors is reduced by one all-reduce for each, the last one first."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from tests.backend.graphs import traced
from tests.backend.lowering.rules.test_collectives import assert_equal, run
from xla_dynamo.backend.lowering import lower
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.options import parse
from xla_dynamo.backend.passes.contract import Context, WayIn, target_of
from xla_dynamo.backend.passes.lowering.separate_all_reduces import separate_all_reduces

ops = torch.ops.xla_dynamo
CONTEXT = Context("test", WayIn.LAZY, target_of(parse({}, None), "cpu"))
GIVEN = (
    [torch.arange(6.0).reshape(2, 3) + i for i in range(2)],
    [torch.tensor(i + 2, dtype=torch.int32) for i in range(2)],
    [torch.arange(4.0) * i for i in range(2)],
)


def gradients(*tensors: Tensor) -> list[Tensor]:
    reduced = ops.all_reduce(tensors, "sum", [0, 1], 2)
    return [reduced[2] * 2, reduced[0]]  # one of them is not used


def test_one_for_each_and_the_last_comes_first() -> None:
    graph = traced(gradients, *[each[0] for each in GIVEN]).graph
    assert separate_all_reduces(graph, CONTEXT)
    graph.lint()
    text = str(lower.lower_graph(graph, Target("cpu")).stablehlo)
    shapes = re.findall(r"\}\) : \((tensor<[^>]*>)\) -> tensor", text)
    assert shapes == ["tensor<4xf32>", "tensor<i32>", "tensor<2x3xf32>"]


def test_the_numbers_are_as_before() -> None:
    plain = run(gradients, *GIVEN)
    graph = traced(gradients, *[each[0] for each in GIVEN]).graph
    separate_all_reduces(graph, CONTEXT)
    made = run(torch.fx.GraphModule({}, graph), *GIVEN)
    for actual, expected in zip(made, plain, strict=True):
        assert_equal([[each] for each in actual], expected)


def test_one_tensor_is_left() -> None:
    graph = traced(lambda x: ops.all_reduce([x], "sum", [0, 1], 2)[0], GIVEN[0][0]).graph
    assert not separate_all_reduces(graph, CONTEXT)
