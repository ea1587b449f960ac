"""Collectives of a program keep their order, whatever else is computed."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.backend.graphs import traced
from tests.backend.lowering.rules.test_collectives import assert_equal, devices, run
from xla_dynamo.backend.lowering import lower
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.ops.collectives import COMMUNICATING
from xla_dynamo.backend.options import parse
from xla_dynamo.backend.passes.contract import Context, WayIn, target_of
from xla_dynamo.backend.passes.lowering.order_collectives import order_collectives
from xla_dynamo.backend.passes.lowering.separate_all_reduces import separate_all_reduces
from xla_dynamo.backend.runtime import pjrt

ops = torch.ops.xla_dynamo
CONTEXT = Context("test", WayIn.LAZY, target_of(parse({}, None), "cpu"))
BOTH = [0, 1], 2


def program(x: Tensor, y: Tensor) -> list[Tensor]:
    total, count = ops.all_reduce([x, y], "sum", *BOTH)
    parts = ops.all_gather(y, 0, *BOTH)
    sent = ops.collective_permute(x, [0, 1, 1, 0])
    swapped = ops.all_to_all(x.t().contiguous(), 0, 0, *BOTH)
    part = ops.reduce_scatter(total, "max", 1, *BOTH)  # it needs the first, not the one before it
    return [part, swapped, sent, parts, count]


GIVEN = (
    [torch.arange(12.0).reshape(3, 4) + i for i in range(2)],
    [torch.tensor([i, 2]) for i in range(2)],
)


def ordered(function: Any) -> torch.fx.Graph:
    graph = traced(function, *[each[0] for each in GIVEN]).graph
    separate_all_reduces(graph, CONTEXT)
    assert order_collectives(graph, CONTEXT)
    return graph


def optimized(graph: torch.fx.Graph, results: list[Any]) -> str:
    module = lower.lower_graph(graph, Target("cpu")).module
    inputs = [(tuple(node.meta["val"].shape), None) for node in graph.find_nodes(op="placeholder")]
    return pjrt.compile(module, devices(2), inputs, results, {}).optimized_hlo()


def test_each_needs_the_one_before_it() -> None:
    graph = ordered(program)
    kept = [node for node in graph.nodes if node.target in COMMUNICATING]
    assert ["after" in node.kwargs for node in kept] == [False, *[True] * 5]  # it takes an argument
    for earlier, later in itertools.pairwise(kept):
        origin = later.kwargs["after"]
        assert earlier in (origin, *origin.all_input_nodes)


def test_one_that_needs_the_other_is_left() -> None:
    graph = traced(
        lambda x: ops.all_gather(ops.all_reduce([x], "sum", *BOTH)[0] + 1, 0, *BOTH), GIVEN[0][0]
    ).graph
    order_collectives(graph, CONTEXT)
    assert not any("after" in node.kwargs for node in graph.nodes)


@pytest.mark.parametrize("number", [0.0, 1.0, 2.5, float("nan"), False, True, 0, 1 + 2j])
def test_a_constant_is_exchanged_too(number: complex) -> None:
    """XLA takes it that all have it, which is so in one program, but not in processes'."""

    def function(x: Tensor) -> Tensor:
        return ops.all_gather(torch.full((2,), number), 0, *BOTH)

    graph = traced(function, GIVEN[0][0]).graph
    assert not order_collectives(graph, replace(CONTEXT, partitioned=True))
    assert order_collectives(graph, CONTEXT)
    assert "all-gather(" in optimized(graph, [((4,), str(torch.full((1,), number).numpy().dtype))])


def test_what_only_has_the_shape_of_an_argument_is_a_constant() -> None:
    graph = traced(lambda x: ops.all_gather(torch.zeros_like(x) + 1, 0, *BOTH), GIVEN[0][0]).graph
    assert order_collectives(graph, CONTEXT)
    assert "all-gather(" in optimized(graph, [((6, 4), "f4")])
    graph = traced(lambda x: ops.all_gather(x * 2 + 1, 0, *BOTH), GIVEN[0][0]).graph
    assert not order_collectives(graph, CONTEXT)


def test_elsewhere_xla_may_order_them() -> None:
    """A TPU's processes run the same program, and there XLA combines small all-reduces."""
    graph = traced(program, *[each[0] for each in GIVEN]).graph
    assert not order_collectives(graph, replace(CONTEXT, target=Target("tpu")))
    assert not any("after" in node.kwargs for node in graph.nodes)


@pytest.mark.parametrize("backwards", [False, True])
def test_xla_keeps_the_order(backwards: bool) -> None:
    """Also where the results are asked for in another one."""
    graph = ordered(lambda *xs: program(*xs)[:: -1 if backwards else 1])
    text = optimized(graph, [((1,), "f4")] * 5)
    entry = text[text.index("ENTRY") :]
    kinds = re.findall(
        r" (all-reduce|all-gather|collective-permute|all-to-all|reduce-scatter)\(", entry
    )
    expected = "all-reduce all-reduce all-gather collective-permute all-to-all reduce-scatter"
    assert " ".join(kinds) == expected


def test_the_numbers_are_as_before() -> None:
    plain = run(program, *GIVEN)
    graph = ordered(program)
    module = torch.fx.GraphModule({}, graph)
    for actual, expected in zip(run(module, *GIVEN), plain, strict=True):
        assert_equal([[each] for each in actual], expected)
