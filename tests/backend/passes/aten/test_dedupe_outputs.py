"""A result that is given several times is computed and returned once."""

from __future__ import annotations

import pytest
import torch

from tests.backend.graphs import context, traced
from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.aten.dedupe_outputs import dedupe_outputs

pytestmark = pytest.mark.spine


def test_results_are_distinct_and_their_places_known() -> None:
    x = torch.arange(3.0)
    module = traced(lambda x: ((y := x + 1), x, y, x * 2, x), x)
    told = context()
    assert dedupe_outputs(module.graph, told)
    module.recompile()
    results = module(x)
    assert len(results) == len(fx.results(module.graph)) == 3
    again = [results[position] for position in told.lifted.outputs]
    assert [y.tolist() for y in again] == [y.tolist() for y in (x + 1, x, x + 1, x * 2, x)]


def test_distinct_results_stay() -> None:
    module = traced(lambda x: (x + 1, x * 2), torch.ones(2))
    told = context()
    assert not dedupe_outputs(module.graph, told)
    assert told.lifted.outputs == [0, 1]
