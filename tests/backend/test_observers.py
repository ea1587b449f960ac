"""Observers hear of programs; sources listen as long as somebody observes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from xla_dynamo.backend import observers
from xla_dynamo.backend.observers import Source

pytestmark = pytest.mark.spine


class Recorder:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def compiled(self, record: Any, executable: Any, graph: Any) -> None:
        self.told.append(("compiled", record.graph, executable.record is record, graph is not None))

    def described(self, executable: Any, ops: Any) -> None:
        self.told.append(("described", ops))

    def launched_as(self, program: int) -> None:
        self.told.append(("launched as", program))

    def ran(self, program: int, nanoseconds: int, end: int) -> None:
        self.told.append(("ran", program, nanoseconds, end))

    def stepped(self) -> None:
        self.told.append(("stepped",))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setattr(observers, "sources", [])
    yield Recorder()
    observers.observe(None)


def test_nobody_is_told_without_an_observer(recorder: Recorder) -> None:
    observers.observe(recorder)
    observers.observe(None)
    observers.stepped()
    observers.ran(1, 2, 3)
    observers.launched_as(1)
    assert recorder.told == []


def test_an_observer_is_told(recorder: Recorder) -> None:
    observers.observe(recorder)
    observers.launched_as(1)
    observers.ran(1, 2, 3)
    observers.stepped()
    torch.compile(lambda x: x + 1, backend="xla")(torch.ones(2))
    told = [("launched as", 1), ("ran", 1, 2, 3), ("stepped",)]
    assert recorder.told == [*told, ("compiled", "0/0 inference", True, True)]


def test_sources_listen_while_somebody_observes(recorder: Recorder) -> None:
    heard: list[tuple[str, bool]] = []

    def source(name: str) -> Source:
        return Source(lambda begin: heard.append((name, begin)), list, dict)

    observers.add(source("early"))
    assert heard == []
    observers.observe(recorder)
    observers.add(source("late"))
    observers.observe(Recorder())  # they go on
    observers.observe(None)
    assert heard == [("early", True), ("late", True), ("early", False), ("late", False)]
