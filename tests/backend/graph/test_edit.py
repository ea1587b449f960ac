"""Edits keep the user's line and give every node its value."""

from __future__ import annotations

import pytest
import torch

from tests.backend.graphs import named, ops, traced
from xla_dynamo.backend.graph import edit, fx

pytestmark = pytest.mark.spine
aten = torch.ops.aten
X = torch.arange(6.0).reshape(2, 3)


def test_a_call_has_its_value_and_the_line_of_what_it_is_like() -> None:
    module = traced(lambda x: x.exp(), X)
    exp = named(module.graph, "exp")
    exp.meta.update(stack_trace="a line", number=3, hint=7)
    with module.graph.inserting_before(exp):
        total = edit.call(module.graph, aten.sum.dim_IntList, exp.args[0], [1], like=exp)
    assert total.meta["val"].shape == (2,)
    assert {k: v for k, v in total.meta.items() if k in ("stack_trace", "number", "hint")} == {
        "stack_trace": "a line",
        "number": 3,
    }
    with module.graph.inserting_after(exp):
        sine = edit.call(module.graph, aten.sin.default, exp.args[0], like=exp)
    edit.substitute(exp, sine)
    edit.drop_unused(module.graph)
    module.recompile()
    assert ops(module.graph) == ["sin.default"]
    assert torch.equal(module(X)[0], X.sin())


def test_targets_are_exchanged() -> None:
    module = traced(lambda x: x.exp() + x.sin(), X)
    assert edit.exchange_targets(module.graph, {aten.exp.default: aten.cos.default})
    module.recompile()
    assert torch.equal(module(X)[0], X.cos() + X.sin())
    assert not edit.exchange_targets(module.graph, {aten.exp.default: aten.cos.default})


def test_detached_copies_of_copies_go() -> None:
    module = traced(lambda x: (y := x.exp(), y.detach().detach() + 1), X)
    edit.drop_detached(module.graph, named(module.graph, "exp"))
    assert ops(module.graph) == ["exp.default", "add.Tensor"]


def test_unused_random_ops_go_and_arguments_stay() -> None:
    module = traced(lambda x, y: (torch.rand_like(x), y.relu(), x + 1)[2], X, X * 2)
    edit.drop_unused(module.graph)
    assert ops(module.graph) == ["add.Tensor"]
    assert len(fx.placeholders(module.graph)) == 2


@pytest.mark.parametrize("function", [lambda x: x + 1, lambda: torch.ones(2)])
def test_a_placeholder_is_appended(function) -> None:
    module = traced(function, *[X] * function.__code__.co_argcount)
    new = edit.append_placeholder(module.graph, "key", {"val": 5})
    assert fx.placeholders(module.graph)[-1] is new
    assert new.meta == {"val": 5}
    module.graph.lint()


def test_attributes_of_submodules() -> None:
    outer = torch.nn.Module()
    outer.inner = torch.nn.Module()
    outer.inner.weight = torch.nn.Parameter(X)
    graph = torch.fx.Graph()
    node = graph.get_attr("inner.weight")
    assert edit.attribute(torch.fx.GraphModule(outer, graph), node) is outer.inner.weight
