"""Equal graphs have equal texts, whatever the names; different ones have not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import xla_dynamo
from tests.backend.graphs import traced
from xla_dynamo.backend.graph.text import is_text_complete, text_of

X = torch.arange(6.0).reshape(2, 3)


def _text(function: Callable[[Tensor], Tensor], x: Tensor = X) -> str:
    return text_of(traced(function, x).graph)


def test_names_do_not_matter() -> None:
    def renamed(value: Tensor) -> Tensor:
        return (value + 1).sin()

    graph = traced(renamed, X).graph
    for number, node in enumerate(graph.nodes):
        node.name = f"other_{number}"
    assert text_of(graph) == _text(lambda x: (x + 1).sin())


@pytest.mark.parametrize(
    "other",
    [
        lambda x: (x + 2).sin(),
        lambda x: (x + 1).cos(),
        lambda x: x.sin() + 1,
        lambda x: (x + x).sin(),
    ],
)
def test_another_computation_is_another_text(other: Callable[[Tensor], Tensor]) -> None:
    assert _text(other) != _text(lambda x: (x + 1).sin())


@pytest.mark.parametrize("x", [X.double(), X[:1], X.t().contiguous().t()])
def test_another_argument_is_another_text(x: Tensor) -> None:
    assert _text(torch.sin, x) != _text(torch.sin)


def test_a_function_of_this_process_has_no_complete_text() -> None:
    assert is_text_complete(traced(lambda x: (x + 1).sort()[0].sin(), X).graph)
    double = xla_dynamo.jax_function(lambda x: x * 2)
    assert not is_text_complete(traced(double, X).graph)


def test_an_op_of_another_library_has_no_complete_text() -> None:
    @torch.library.custom_op("test_text::same", mutates_args=())
    def same(x: Tensor) -> Tensor:
        return x.clone()

    same.register_fake(torch.empty_like)
    assert not is_text_complete(traced(same, X).graph)


def test_a_graph_with_attributes_has_no_complete_text() -> None:
    graph = torch.fx.Graph()
    graph.output((graph.get_attr("body"),))
    assert not is_text_complete(graph)
