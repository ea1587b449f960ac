"""Graphs of calls come back from JSON, with other functions of the same names."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule

from xla_dynamo.backend.executable import turns
from xla_dynamo.backend.graph import plain


def _split(numbers: list[Any]) -> list[Any]:
    return [numbers[0] + 1, numbers[0] * 2]


def _graph() -> Graph:
    graph = Graph()
    arguments = graph.placeholder("arguments")
    first, second = (graph.call_method("pop", (arguments, 0)) for _ in range(2))
    both = graph.call_function(_split, ([first, second],))
    item = graph.call_function(operator.getitem, (both, 1))
    summed = graph.call_function(torch.add, (item, second), {"alpha": 1})
    graph.output([summed, None, item])
    return graph


NAMES: dict[Any, turns.Name] = {
    _split: ("program", 7),
    operator.getitem: ("item",),
    torch.add: ("kernel", torch.ops.aten.add.Tensor, False, None),
}


def test_there_and_back() -> None:
    told = json.loads(json.dumps(turns.to_json(_graph(), NAMES)))
    functions: dict[str, Callable[..., Any]] = {"program": _split, "item": operator.getitem}
    asked: list[turns.Name] = []

    def function_of(name: turns.Name) -> Callable[..., Any]:
        asked.append(name)
        return functions[name[0]] if name[0] in functions else name[1]

    again = GraphModule({}, turns.graph_of(told, function_of))
    x, y = torch.tensor(3), torch.tensor(4)
    given = [x, y]
    assert again(given) == GraphModule({}, _graph())([x, y]) == [10, None, 6]
    assert not given  # arguments are dropped as they are used
    assert asked == list(NAMES.values())


def test_a_function_without_a_name_is_refused() -> None:
    with pytest.raises(plain.NotPlain, match="add"):
        turns.to_json(_graph(), {name: of for name, of in NAMES.items() if name is not torch.add})
