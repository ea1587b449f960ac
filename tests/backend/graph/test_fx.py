"""Questions about graphs and nodes."""

from __future__ import annotations

import pytest
import torch

from tests.backend.graphs import named, ops, traced
from xla_dynamo.backend.graph import fx

pytestmark = pytest.mark.spine
X = torch.ones(2, 3)


def test_parts_of_a_graph() -> None:
    graph = traced(lambda x, y: (x + y, x.t(), 3), X, X * 2).graph
    assert [node.name for node in fx.placeholders(graph)] == ["arg0_1", "arg1_1"]
    assert [node.name for node in fx.calls(graph)] == ["add", "t"]
    assert fx.results(graph) == [named(graph, "add"), named(graph, "t"), 3]


def test_a_copy_keeps_names_and_metadata_and_shares_no_node() -> None:
    graph = traced(lambda x: (x + 1).t(), X).graph
    named(graph, "add").meta["stack_trace"] = "a line"
    copy = fx.copy(graph)
    assert ops(copy) == ops(graph)
    assert named(copy, "add").meta["stack_trace"] == "a line"
    assert named(copy, "t").meta["val"] is named(graph, "t").meta["val"]
    assert not set(copy.nodes) & set(graph.nodes)
    copy.erase_node(copy.output_node())
    graph.lint()


def test_arguments_by_name_with_defaults() -> None:
    graph = traced(lambda x: x.sum(1), X).graph
    x = fx.placeholders(graph)[0]
    expected = {"input": x, "dim": [1], "keepdim": False, "dtype": None}
    assert fx.arguments(named(graph, "sum_1")) == expected


def test_views() -> None:
    graph = traced(lambda x: (x.t(), x.clone(), x.split(1), x.relu_(), x[0]), X).graph
    assert [n.name for n in fx.calls(graph) if fx.is_view(n)] == ["t", "getitem", "select"][::2]
    aten = torch.ops.aten
    assert fx.gives_views(aten.split.Tensor)  # a list of them
    assert not fx.gives_views(aten.relu_.default)
    assert not fx.gives_views(len)


def test_symbolic_and_inexact_values() -> None:
    graph = traced(lambda x: x.reshape(x.shape[0] * 3), X, mode="symbolic").graph
    sizes = [node.meta["val"] for node in fx.calls(graph)]
    assert [fx.is_symbolic(value) for value in sizes] == [True, True, False]
    assert not fx.is_symbolic(3)
    values = (X, X.bfloat16(), X.to(torch.complex64), X.long(), X.bool(), 1.5)
    assert [fx.is_inexact(value) for value in values] == [True, True, True, False, False, False]
