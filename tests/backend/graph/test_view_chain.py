"""Views of arguments, as steps that are done again on the tensors of a call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.backend.graphs import traced
from xla_dynamo.backend.graph import fx, view_chain

pytestmark = pytest.mark.spine
X = torch.arange(24.0).reshape(4, 6)

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "one": lambda x: x.t(),
    "several": lambda x: x.t()[1:].unsqueeze(0).expand(3, 5, 4),
    "of a list": lambda x: x.split(2, 1)[1],
    "of a list of a view": lambda x: x.t().chunk(3)[2].t(),
    "diagonal": lambda x: x.diagonal(1),
}
NO_VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x,
    "computed": lambda x: x + 1,
    "a view of what is computed": lambda x: (x + 1).t(),
    "a copy": lambda x: x.t().clone(),
    "a reshape that copies": lambda x: x.t().reshape(-1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_made_again(name: str) -> None:
    graph = traced(VIEWS[name], X).graph
    (result,) = fx.results(graph)
    made = view_chain.of_argument(result)
    assert made is not None
    argument, steps = made
    assert argument is fx.placeholders(graph)[0]
    other = torch.randn(4, 6)
    again, expected = view_chain.replay(other, steps), VIEWS[name](other)
    assert torch.equal(again, expected)
    assert again.stride() == expected.stride()
    assert again.data_ptr() == expected.data_ptr()


@pytest.mark.parametrize("name", NO_VIEWS)
def test_what_is_no_view_of_an_argument(name: str) -> None:
    (result,) = fx.results(traced(NO_VIEWS[name], X).graph)
    assert view_chain.of_argument(result) is None


def test_a_trace_ends_at_what_computes() -> None:
    (result,) = fx.results(traced(lambda x: (x + 1).t()[0], X).graph)
    node, steps = view_chain.trace(result)
    assert node.name == "add"
    assert len(steps) == 2
    assert torch.equal(view_chain.replay(X + 1, steps), (X + 1)[:, 0])
