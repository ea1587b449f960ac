"""What is known of the values of a graph's nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.backend.graphs import traced
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.graph.constants import base, constant

pytestmark = pytest.mark.spine
X = torch.ones(3, 4)


def result(program: Callable[[Tensor], Any]) -> Any:
    return fx.results(traced(program, X).graph)[0]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda x: torch.full_like(x, 3.0), 3.0),
        (lambda x: -torch.full_like(x, 3.0).t()[1:], -3.0),
        (lambda x: torch.full((2,), -3.0).t().neg(), 3.0),
        (lambda x: x.new_ones(2).expand(3, 2), 1),
        (lambda x: torch.zeros(2).clone(), 0),
        (lambda x: x + 1, None),
        (lambda x: x.t(), None),
    ],
)
def test_a_constant_is_known_through_views_and_signs(
    program: Callable[[Tensor], Any], expected: float | None
) -> None:
    assert constant(result(program)) == expected


def test_negated_zeros_are_negative() -> None:
    assert math.copysign(1, constant(result(lambda x: -torch.zeros_like(x)))) == -1


def test_a_number_is_a_constant() -> None:
    assert constant(2.5) == 2.5


def test_the_base_is_where_values_are_computed() -> None:
    node = result(lambda x: -(x + 1).t()[0])
    assert base(node).target is torch.ops.aten.add.Tensor
    assert list(fx.bases(node)) == [node]  # a negated tensor is no view
    assert len(list(fx.bases(node.args[0]))) == 3
