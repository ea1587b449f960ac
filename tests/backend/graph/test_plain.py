"""Plain values come back from JSON as they were; others are refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from xla_dynamo.backend.graph import host_ops, plain

aten = torch.ops.aten


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -0.0,
        math.inf,
        "text",
        torch.float16,
        torch.strided,
        torch.channels_last,
        torch.device("cpu"),
        aten.convolution_backward.default,
        torch.ops.xla_dynamo.lstm_layer.default,
        host_ops.strided,
        [1, (2, [None]), torch.Size([4])],
        {3: (1, 0), "dtype": torch.bool},
        (),
    ],
)
def test_there_and_back(value: Any) -> None:
    told = json.loads(json.dumps(plain.to_json(value)))
    again = plain.of_json(told)
    assert again == value
    assert repr(again) == repr(tuple(value) if isinstance(value, torch.Size) else value).replace(
        "torch.Size([4])", "(4,)"
    )


def test_nodes_are_numbers() -> None:
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    told = plain.to_json(([x, None], y), {x: 0, y: 1})
    assert plain.of_json(told, ["of x", "of y"]) == (["of x", None], "of y")


@pytest.mark.parametrize("value", [len, torch.ones(1), object(), 1j, torch.Generator()])
def test_what_another_process_cannot_make_is_refused(value: Any) -> None:
    with pytest.raises(plain.NotPlain):
        plain.to_json([value])
