"""Some ranks as a row or column of a regular mesh of all."""

from __future__ import annotations

import pytest

from xla_dynamo.backend.graph.process_groups import mesh_of
from xla_dynamo.errors import NotAvailable

pytestmark = pytest.mark.spine


@pytest.mark.parametrize(
    ("ranks", "count", "groups"),
    [
        ([0, 1], 2, [[0, 1]]),
        ([2], 4, [[0], [1], [2], [3]]),
        ([2, 3], 4, [[0, 1], [2, 3]]),
        ([1, 3], 4, [[0, 2], [1, 3]]),
        ([1, 5], 8, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ([4, 6], 8, [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ([0, 2, 4, 6], 8, [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ],
)
def test_the_others_are_grouped_alike(
    ranks: list[int], count: int, groups: list[list[int]]
) -> None:
    assert mesh_of(ranks, count) == groups
    for each in groups:
        assert mesh_of(each, count) == groups


@pytest.mark.parametrize(
    ("ranks", "count"), [([1, 2], 4), ([0, 1, 3], 6), ([0, 1], 3), ([1, 0], 2), ([0, 3], 4)]
)
def test_irregular_groups_are_refused(ranks: list[int], count: int) -> None:
    with pytest.raises(NotAvailable, match="no row or column of a regular mesh"):
        mesh_of(ranks, count)
