"""Executables of traces: how many are kept, and what happens to the others."""

from __future__ import annotations

import weakref

import pytest
import torch
import torch_xla  # noqa: F401

from tests.compat.loops import counting
from tests.like_eager.lazy import XLA
from xla_dynamo.compat.execution import program_cache


def total(count: int) -> float:
    """A program of its own for each count."""
    return (torch.ones(count, device=XLA) * 2).sum().item()


def test_the_latest_executables_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache._runs, "capacity", 3)
    total(1)
    first = weakref.ref(next(reversed(program_cache._runs.values())))
    with counting() as counts:
        assert [total(n) for n in range(2, 6)] == [4, 6, 8, 10]
    assert counts.compiles == 4
    assert first() is None  # at once, without a collection of garbage
    with counting() as counts:
        assert [total(n) for n in (5, 4, 3)] == [10, 8, 6]
    assert counts.compiles == 0
    with counting() as counts:
        assert [total(1), total(1)] == [2, 2]
    assert counts.compiles == 1
