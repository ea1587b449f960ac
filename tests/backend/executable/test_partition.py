"""A graph and the nodes that XLA cannot take -> as few segments as there can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from tests.backend.graphs import named, ops, traced
from xla_dynamo.backend.executable.partition import Segment, split
from xla_dynamo.backend.graph import fx

pytestmark = pytest.mark.spine
X = torch.arange(6.0).reshape(2, 3) - 2


def steps(function: Callable[[Tensor], Any], refused: str, *, late: bool = False) -> list[object]:
    """The steps of `function` where XLA refuses an op: a segment's ops, or the refused op."""
    graph = traced(function, X).graph
    found = split(graph, [n for n in fx.calls(graph) if ops_of(n) == refused], late=late)
    return [ops(s.graph) if isinstance(s, Segment) else ops_of(s) for s in found]


def ops_of(node: Node) -> str:
    return str(node.target).removeprefix("aten.")


def run(graph: Graph, parts: list[Segment | Node], *inputs: Tensor) -> list[Tensor]:
    """The results of `graph`, computed step by step."""
    values: dict[Node, Any] = dict(zip(fx.placeholders(graph), inputs, strict=True))
    for part in parts:
        if isinstance(part, Node):
            args = map_arg(part.args, values.__getitem__)
            values[part] = part.target(*args)  # type: ignore[operator]
        else:
            given = [values[node] for node in part.inputs]
            computed = GraphModule({}, part.graph)(*given)
            values.update(zip(part.outputs, computed, strict=True))
    return [values[node] for node in fx.results(graph)]


def test_nothing_refused_is_one_segment() -> None:
    assert steps(lambda x: x.exp().sin(), "cos.default") == [["exp.default", "sin.default"]]


def test_a_refused_op_splits_what_comes_after_it_from_what_it_needs() -> None:
    def function(x: Tensor) -> Tensor:
        return x.exp().cos().sin()

    assert steps(function, "cos.default") == [["exp.default"], "cos.default", ["sin.default"]]


def test_refused_ops_that_do_not_wait_for_each_other_share_a_split() -> None:
    def function(x: Tensor) -> Tensor:
        return x.exp().cos() + x.sin().cos() + x.tan()

    first = ["exp.default", "sin.default", "tan.default"]
    last = ["add.Tensor", "add.Tensor"]
    assert steps(function, "cos.default") == [first, "cos.default", "cos.default", last]


def test_what_needs_no_refused_op_goes_into_the_first_segment() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.cos().sin()
        return y, x.exp()  # written last, computed first

    assert steps(function, "cos.default") == [["exp.default"], "cos.default", ["sin.default"]]


def test_results_of_a_refused_op_are_picked_without_a_program() -> None:
    def function(x: Tensor) -> Tensor:
        values, places = x.sort(1)
        return values.exp() + places

    assert steps(function, "sort.default") == [
        "sort.default",
        "<built-in function getitem>",
        "<built-in function getitem>",
        ["exp.default", "add.Tensor"],
    ]


def test_late_is_where_it_is_used() -> None:
    def function(x: Tensor) -> Tensor:
        return x.exp().cos() * x.sin().tan()

    assert steps(function, "cos.default", late=True) == [
        ["exp.default"],
        "cos.default",
        ["sin.default", "tan.default", "mul.Tensor"],
    ]


def test_late_leaves_what_a_refused_op_needs_and_what_is_returned() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp()
        return y.sin(), y.cos().neg()

    assert steps(function, "cos.default", late=True) == [
        ["exp.default", "sin.default"],
        "cos.default",
        ["neg.default"],
    ]


def test_late_makes_no_segment_of_results_alone() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.cos().neg(), x.sin()

    assert steps(function, "cos.default", late=True) == [
        "cos.default",
        ["neg.default", "sin.default"],
    ]


def test_a_segment_takes_and_gives_only_what_others_need() -> None:
    graph = traced(lambda x, y: (x.exp() + y).cos() * x, X, X + 1).graph
    first, eager, last = split(graph, [named(graph, "cos")])
    assert isinstance(first, Segment)
    assert isinstance(last, Segment)
    assert [n.name for n in first.inputs] == ["arg0_1", "arg1_1"]
    assert [n.name for n in first.outputs] == ["add"]
    assert [n.name for n in last.inputs] == ["cos", "arg0_1"]
    assert [n.meta["val"].shape for n in fx.placeholders(last.graph)] == [(2, 3), (2, 3)]
    assert eager is named(graph, "cos")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("refused", ["cos.default", "add.Tensor", "exp.default", "sort.default"])
def test_the_steps_compute_what_the_graph_does(refused: str, late: bool) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        values, places = (x.exp() + y.cos()).sort(1)
        return values, places + (values + y).cos().long(), y.exp() + x

    graph = traced(function, X, X.flip(0)).graph
    parts = split(graph, [n for n in fx.calls(graph) if ops_of(n) == refused], late=late)
    for actual, expected in zip(
        run(graph, parts, X, X.flip(0)), function(X, X.flip(0)), strict=True
    ):
        assert torch.equal(actual, expected)


def _stepped(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first = x.cos() * 2
    second = first.cos()
    total = second.sum() * 3
    updated = torch.ops.aten.copy(x, first * 4), torch.ops.aten.copy(x[0, 0], total)
    return second.exp().cos(), *updated


def test_updates_of_arguments_are_the_last_segment() -> None:
    *_, doubled, _, summed, _, last = steps(_stepped, "cos.default", late=True)
    assert doubled == ["mul.Tensor"]
    assert summed == ["sum.default", "exp.default"]  # a sum keeps less than what it is of
    assert isinstance(last, list)
    assert last.count("copy.default") == last.count("mul.Tensor") == 2
    graph = traced(_stepped, X).graph
    cosines = [node for node in fx.calls(graph) if ops_of(node) == "cos.default"]
    for got, want in zip(run(graph, split(graph, cosines, late=True), X), _stepped(X), strict=True):
        torch.testing.assert_close(got, want)
