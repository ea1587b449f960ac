"""Parts are compiled in threads that take turns; equal ones once."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from tests.backend.graphs import traced
from xla_dynamo.backend.executable.parts import Parts

X = torch.arange(6.0)


def _sine(x: Tensor) -> Tensor:
    return x.sin()


def test_others_go_on_while_one_is_in_xla() -> None:
    parts, both = Parts(), threading.Barrier(2, timeout=30)

    def compile(number: int) -> int:
        with parts.others_meanwhile():
            both.wait()
        return number * 2

    assert parts.compiled([1, 2], compile) == [2, 4]
    assert parts.seconds > 0


def test_one_at_a_time_runs_python() -> None:
    parts, inside = Parts(), []

    def compile(number: int) -> None:
        inside.append(number)
        assert inside == [number]
        inside.remove(number)

    parts.compiled(range(20), compile)


def test_equal_graphs_are_compiled_once_also_while_that_goes_on() -> None:
    parts, compiled = Parts(), []

    def compile(graph: torch.fx.Graph) -> object:
        with parts.others_meanwhile():
            compiled.append(graph)
        return object()

    graphs = [traced(f, X).graph for f in (_sine, torch.cos, _sine, _sine)]
    made = parts.compiled(graphs, lambda graph: parts.one_of_each(graph, compile))
    assert len(compiled) == 2
    assert made[0] is made[2] is made[3]
    assert made[1] is not made[0]


def test_what_fails_fails_for_equal_graphs_too() -> None:
    parts = Parts()

    def compile(graph: torch.fx.Graph) -> object:
        raise ValueError("refused")

    def caught(graph: torch.fx.Graph) -> str:
        with pytest.raises(ValueError, match="refused") as error:
            parts.one_of_each(graph, compile)
        return str(error.value)

    graphs = [traced(_sine, X).graph for _ in range(2)]
    assert parts.compiled(graphs, caught) == ["refused"] * 2
