"""Who is blamed for an error."""

from __future__ import annotations

import pytest
import torch

from tests.backend.graphs import traced
from xla_dynamo.backend.graph import error_origin

pytestmark = pytest.mark.spine


def test_nodes_are_numbered_by_position() -> None:
    graph = traced(lambda x: x.exp().sin(), torch.ones(2)).graph
    error_origin.number(graph.nodes)
    assert [node.meta["number"] for node in graph.nodes] == [0, 1, 2, 3]


def test_the_note_is_taken_once() -> None:
    error = ValueError("wrong")
    assert error_origin.take(error) is None
    error_origin.blame(error, None)
    assert error_origin.take(error) is None
    error_origin.blame(error, 0)
    assert error_origin.take(error) == 0
    assert error_origin.take(error) is None
    assert str(error) == "wrong"
