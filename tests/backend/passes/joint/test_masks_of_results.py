"""Backward gets an activation's result, which a convolution saves, and no mask of its input."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xla_dynamo


class Network(nn.Module):
    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.activation(self.first(x))).square().mean()


def changed(network: nn.Module, x: Tensor) -> int:
    """Train as in eager; how many graphs were changed."""
    ours = copy.deepcopy(network)
    compiled = torch.compile(ours, backend="xla", options={"disk_cache": False})
    network(x).backward()
    with xla_dynamo.capture() as stages:
        compiled(x).backward()
    for parameter, other in zip(ours.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, equal_nan=True)
    found = xla_dynamo.passes()["look_at_results"].changed
    assert found == ("i1" not in stages[0].stablehlo.split("return")[-1])
    return found


@pytest.mark.parametrize("activation", [F.relu6, F.leaky_relu, lambda x: F.hardtanh(x, -0.5, 0.1)])
@pytest.mark.parametrize("special", [0.0, 6.0, torch.inf])
def test_a_mask_of_the_input(activation: Callable[[Tensor], Tensor], special: float) -> None:
    network = Network(activation)
    with torch.no_grad():
        assert network.first.bias is not None
        network.first.bias[::3] = special
    assert changed(network, torch.randn(32, 64)) == 1


class Counting(Network):
    """Reads where its activation's input is above 0, before there is a result."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        active = (x > 0).float().mean()
        return self.second(self.activation(x)).square().mean() + active


def test_a_mask_from_before_the_result_stays_that_of_the_input() -> None:
    assert changed(Counting(F.leaky_relu), torch.randn(32, 64)) == 1


def test_a_slope_below_zero_turns_signs() -> None:
    assert changed(Network(lambda x: F.leaky_relu(x, -0.1)), torch.randn(32, 64)) == 0
