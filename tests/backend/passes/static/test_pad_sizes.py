"""The pass on a graph by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx import Graph
from torch.fx.experimental.proxy_tensor import make_fx

from xla_dynamo.backend import pipeline
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, Stage, WayIn
from xla_dynamo.backend.passes.padding.plan import Plan
from xla_dynamo.backend.passes.padding.sizes import Refused
from xla_dynamo.backend.passes.static.pad_sizes import pad_sizes

aten = torch.ops.aten


def traced(function: Callable[[torch.Tensor], tuple[torch.Tensor]]) -> Graph:
    return make_fx(function, tracing_mode="symbolic")(torch.randn(5, 3)).graph


def plan(graph: Graph, bucket: int) -> Plan:
    rows, columns = (n.node.expr for n in fx.placeholders(graph)[0].meta["val"].shape)
    return Plan({rows: bucket}, {columns: 3}, visible=1)


def context(padding: Plan | None) -> Context:
    return Context("test", WayIn.COMPILE, Target("cpu"), padding=padding)


def test_a_sum_is_masked_and_knows_its_size() -> None:
    graph = traced(lambda x: (x.sum() / x.shape[0],))
    given = context(plan(graph, 8))
    pipeline.run(Stage.STATIC, graph, given)
    padded = given.lifted.padded
    assert padded is not None
    assert [dtype for dtype, _ in padded.numbers] == [torch.int64]
    assert fx.placeholders(graph)[0].meta["val"].shape == (8, 3)
    assert any(node.target is aten.where.self for node in graph.nodes)
    assert all(isinstance(n, int) for node in fx.calls(graph) for n in node.meta["val"].shape)


def test_what_is_pointwise_gets_no_mask() -> None:
    graph = traced(lambda x: (x.sin() + 1,))
    assert pad_sizes(graph, context(plan(graph, 8)))
    assert [node.target for node in fx.calls(graph)] == [aten.sin.default, aten.add.Tensor]


def test_without_buckets_nothing_changes() -> None:
    graph = traced(lambda x: (x.sum(),))
    assert not pad_sizes(graph, context(None))


def test_an_op_without_a_rule_is_refused_with_its_symbols() -> None:
    graph = traced(lambda x: (x.median(0).values,))
    size = fx.placeholders(graph)[0].meta["val"].shape[0].node.expr
    with pytest.raises(Refused, match="mixes a padded dimension") as refused:
        pad_sizes(graph, context(plan(graph, 8)))
    assert size in refused.value.symbols
    assert refused.value.node is not None
    assert refused.value.node.target is aten.median.dim
