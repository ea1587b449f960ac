"""Where elements are in memory, and whether views share some."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from xla_dynamo.backend.graph import memory_layout
from xla_dynamo.backend.graph.memory_layout import is_dense, overlap, physical_order

pytestmark = pytest.mark.spine
X = torch.arange(24.0).reshape(2, 3, 4)

ORDERS: dict[str, tuple[Tensor, tuple[int, ...] | None, bool]] = {
    "row-major": (X, None, True),
    "transposed": (X.transpose(0, 2), (2, 1, 0), True),
    "channels last": (
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        (0, 2, 3, 1),
        True,
    ),
    "a dimension of one": (torch.ones(2, 1, 4).transpose(1, 2), None, True),
    "gaps": (X[:, :, ::2], None, False),
    "transposed with gaps": (X[:, :2].transpose(1, 2), None, False),
    "expanded": (torch.ones(3, 1).expand(3, 4), None, False),
    "no elements": (torch.ones(0, 3).t(), None, True),
    "a number": (torch.tensor(1.0), None, True),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders(name: str) -> None:
    value, order, dense = ORDERS[name]
    assert physical_order(value) == order
    assert is_dense(value) == dense
    if order:
        assert value.permute(order).is_contiguous()


OVERLAPS: dict[str, tuple[list[Tensor], bool]] = {
    "halves": ([X[0], X[1]], False),
    "an element in common": ([X[0], X.view(-1)[11:]], True),
    "interleaved": ([X[..., ::2], X[..., 1::2]], False),
    "rows and columns": ([X[0, 1], X[0, :, 2]], True),
    "of no elements": ([X, X[:0]], False),
    "other widths": ([X.view(torch.int32)[0], X[0]], True),
    "other widths apart": ([X.view(torch.int16)[..., ::2], X[1]], True),
    "itself": ([X, X], True),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_overlaps(name: str) -> None:
    values, expected = OVERLAPS[name]
    assert overlap(values) == expected
    assert overlap(values[::-1]) == expected


def test_in_large_memory_the_ends_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_layout, "_FEW", 10)
    assert overlap([X[..., ::2], X[..., 1::2]])
    assert not overlap([X[0], X[1]])
