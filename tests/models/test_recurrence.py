"""A recurrent layer is a loop: a longer sequence makes no larger program."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import xla_dynamo


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_program_size_does_not_grow_with_length(kind: type[nn.RNNBase]) -> None:
    lines = {}
    for length in (5, 50):
        torch.compiler.reset()
        layer = kind(3, 4, num_layers=2, bidirectional=True)
        with xla_dynamo.capture() as stages:
            output, _ = torch.compile(layer, backend="xla", dynamic=False)(
                torch.randn(length, 2, 3)
            )
            output.sum().backward()
        lines[length] = [len(stage.stablehlo.splitlines()) for stage in stages]
    assert len(lines[5]) == 2
    assert lines[5] == lines[50]
