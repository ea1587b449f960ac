"""empty_strided with gaps or overlaps: eager's layout, and memory that a result has to itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import xla_dynamo

LAYOUTS = [
    ((5,), (4,)),
    ((2, 3), (7, 8)),
    ((5, 4, 5), (2, 0, 1)),
    ((2, 1, 3), (20, 10, 5)),
    ((2, 0), (9, 4)),
    ((2, 3), (1, 2)),
    ((), ()),
]


@pytest.mark.parametrize(("size", "stride"), LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64, torch.bool])
def test_layout(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> None:
    def blank(x: Tensor) -> tuple[Tensor, Tensor]:
        new = x.new_empty_strided(size, stride)
        return torch.empty_strided(size, stride, dtype=torch.float16), new

    x = torch.zeros(3, dtype=dtype)
    got, want = torch.compile(blank, backend="xla", fullgraph=True)(x), blank(x)
    for mine, theirs in zip(got, want, strict=True):
        assert (mine.shape, mine.stride(), mine.dtype) == (
            theirs.shape,
            theirs.stride() if theirs.numel() else mine.stride(),
            theirs.dtype,
        )
    assert xla_dynamo.counters() == {}  # no fallback


def test_memory_is_shared_by_views_only() -> None:
    def blanks() -> tuple[Tensor, Tensor, Tensor]:
        one = torch.empty_strided((2, 3), (8, 2))
        return one, one.T, torch.empty_strided((2, 3), (8, 2))

    one, turned, other = torch.compile(blanks, backend="xla", fullgraph=True)()
    other.fill_(1)
    one.fill_(2)
    assert turned.eq(2).all()
    assert other.eq(1).all()


def test_what_is_copied_into_it() -> None:
    def copied(x: Tensor) -> Tensor:
        return torch.empty_strided((2, 3), (7, 2)).copy_(x).sin()

    x = torch.randn(2, 3)
    torch.testing.assert_close(torch.compile(copied, backend="xla")(x), copied(x))
