"""Symbolic sizes become the numbers of a call; int arguments that are data stay arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from tests.backend.graphs import context, ops, traced
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.static.specialize import find_symbols, specialize

pytestmark = pytest.mark.spine


def symbolic(function: Callable[..., Any], *inputs: Any) -> GraphModule:
    return traced(function, *inputs, mode="symbolic")


def specialized(module: GraphModule, *arguments: Any) -> GraphModule:
    assert specialize(module.graph, context(arguments=arguments))
    module.graph.lint()
    module.recompile()
    return module


def test_symbols_are_read_off_the_first_dimension_that_has_them() -> None:
    module = symbolic(lambda x, y: x @ y, torch.ones(3, 4), torch.ones(4, 5))
    symbols = find_symbols(module.graph)
    assert symbols.sources == ((0, 0), (0, 1), (1, 1))
    assert symbols.key((torch.ones(6, 7), torch.ones(7, 8))) == (6, 7, 8)


def test_static_shapes_have_no_symbols() -> None:
    symbols = find_symbols(traced(lambda x: x + 1, torch.ones(3)).graph)
    assert symbols.sources == ()
    assert symbols.key((torch.ones(3),)) == ()


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_every_size_becomes_a_number(rows: int) -> None:
    def function(x: Tensor) -> Tensor:
        n = x.shape[0]
        return x.reshape(n * 4).narrow(0, 1, n * 4 - 1) * n

    module = symbolic(function, torch.ones(5, 4))
    x = torch.arange(rows * 4.0).reshape(rows, 4)
    specialized(module, x)
    assert torch.equal(module(x)[0], function(x))
    assert not [n for n in module.graph.nodes if fx.is_symbolic(n.meta.get("val"))]
    assert fx.results(module.graph)[0].meta["val"].shape == (rows * 4 - 1,)
    assert not [op for op in ops(module.graph) if op.startswith("sym_size")]


def test_a_result_that_is_a_size_becomes_a_constant() -> None:
    module = symbolic(lambda x: (x + 1, x.shape[0] * 2), torch.ones(3, 4))
    specialized(module, torch.ones(5, 4))
    assert fx.results(module.graph)[1] == 10


def test_placeholders_keep_their_positions_and_lines() -> None:
    module = symbolic(lambda x, y: x.sum() + y, torch.ones(3), torch.ones(2))
    for node in fx.calls(module.graph):
        node.meta["stack_trace"] = "a line"
    names = [node.name for node in fx.placeholders(module.graph)]
    specialized(module, torch.ones(8), torch.ones(9))
    placeholders = fx.placeholders(module.graph)
    assert [node.name for node in placeholders] == names
    assert [node.meta["val"].shape for node in placeholders] == [(8,), (9,)]
    assert {n.meta["stack_trace"] for n in fx.calls(module.graph)} == {"a line"}


def test_strides_are_those_of_the_arguments() -> None:
    module = symbolic(lambda x: x.t(), torch.ones(3, 4))
    specialized(module, torch.ones(6, 5).t())
    (result,) = fx.results(module.graph)
    assert result.meta["val"].stride() == (5, 1)


def graph_with_int(shape_depends: bool) -> GraphModule:
    def function(x: Tensor, n: Any) -> Tensor:
        return x.new_zeros(n) + x.sum() if shape_depends else x * n

    return symbolic(function, torch.ones(3), 7)


def test_an_int_that_is_data_stays_an_argument() -> None:
    module = graph_with_int(shape_depends=False)
    assert find_symbols(module.graph).runtime_ints == {1}
    assert find_symbols(module.graph).key((torch.ones(5), 7)) == (5,)
    specialized(module, torch.ones(5), 7)
    number = fx.placeholders(module.graph)[1]
    assert number.meta["val"].shape == ()
    assert number.meta["val"].dtype == torch.int64
    assert len(number.users) == 1
    assert torch.equal(module(torch.ones(5), torch.tensor(9))[0], torch.full((5,), 9.0))


def test_an_int_that_a_shape_depends_on_is_part_of_the_key() -> None:
    module = graph_with_int(shape_depends=True)
    symbols = find_symbols(module.graph)
    assert symbols.runtime_ints == frozenset()
    assert symbols.key((torch.ones(3), 9))[0] == 9


def test_identities_and_checks_go_even_where_all_is_static() -> None:
    module = traced(lambda x: x.detach() + 1, torch.ones(3))
    assert {"detach.default", "alias.default"} & set(ops(module.graph))  # alias: torch 2.15
    assert specialize(module.graph, context())
    assert ops(module.graph) == ["add.Tensor"]
    assert not specialize(module.graph, context())
