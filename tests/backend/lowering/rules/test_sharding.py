"""A mark inside of a program is a constraint for XLA's partitioner."""

from __future__ import annotations

import pytest
import torch

from tests.backend.graphs import traced
from xla_dynamo.backend.lowering.lower import lower_graph
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.ops.sharding import MARK

pytestmark = pytest.mark.spine
ROWS = '#sdy.sharding<mesh<["x"=4]>, [{"x"}, {}]>'


def test_a_constraint() -> None:
    graph = traced(lambda x: (MARK(x * 2, ROWS),), torch.ones(4, 2)).graph
    text = lower_graph(graph, Target("cpu")).stablehlo
    assert "sdy.sharding_constraint" in text
    assert '["x"=4]' in text
    assert '[{"x"}, {}]' in text


def test_in_eager_it_is_a_copy() -> None:
    x = torch.ones(4, 2)
    assert torch.equal(MARK(x, ROWS), x)
    assert MARK(x, ROWS).data_ptr() != x.data_ptr()
