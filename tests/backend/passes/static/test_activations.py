"""Activations between PyTorch's kernels, and their gradients, are one call; elsewhere as before."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xla_dynamo

WIDTH = 32


class Network(nn.Module):
    """Two convolutions, and `activation` between them of a few special values, too."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.first, self.second = (nn.Conv2d(WIDTH, WIDTH, 3) for _ in range(2))
        special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])
        self.register_buffer("special", special.repeat(20)[:WIDTH, None, None])

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y = torch.cat([y[:1] * 0 + self.special, y[1:]])
        return self.second(self.activation(y)).nan_to_num(0, 1, -1).square().mean()


def assert_trains_like_eager(activation: Callable[[Tensor], Tensor], **options: Any) -> int:
    """Compare the gradients with eager's; how many graphs were given joined gradients."""
    eager = Network(activation)
    ours = copy.deepcopy(eager)
    compiled = torch.compile(ours, backend="xla", options={"disk_cache": False, **options})
    x = torch.randn(3, WIDTH, 20, 20)
    eager(x).backward()
    compiled(x).backward()
    for parameter, other in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, equal_nan=True)
    return xla_dynamo.passes()["join_activations"].changed


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "ReLU": F.relu,
    "ReLU6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.2),
    "Hardswish": F.hardswish,
    "leaky ReLU": F.leaky_relu,
    "of slope 0": lambda x: F.leaky_relu(x, 0.0),
}


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_between_kernels_it_is_one_op(activation: Callable[[Tensor], Tensor]) -> None:
    of_forward = activation is F.hardswish
    assert assert_trains_like_eager(activation) == 1 + of_forward


CHAINS: dict[str, Callable[[Tensor], Tensor]] = {
    "Hardswish twice": lambda x: F.hardswish(F.hardswish(x)),
    "leaky ReLU, ReLU6": lambda x: F.relu6(F.leaky_relu(x)),
}


@pytest.mark.parametrize("activation", CHAINS.values(), ids=CHAINS)
def test_one_that_takes_what_another_gave(activation: Callable[[Tensor], Tensor]) -> None:
    assert assert_trains_like_eager(activation) > 0


def test_a_number_that_is_added_more_than_once() -> None:
    """x + 3 with alpha=2 is no part of Hardswish."""

    def activation(x: Tensor) -> Tensor:
        return x * torch.add(x, 3, alpha=2).clamp(min=0).clamp(max=6) / 6

    assert assert_trains_like_eager(activation) == 0


def test_a_program_of_xla_alone_has_none() -> None:
    assert assert_trains_like_eager(F.relu, cpu_kernels="xla") == 0


@pytest.mark.parametrize(
    "activation",
    [
        lambda x: F.threshold(x, 0.5, 0.0),
        lambda x: torch.where((x <= 0) | (x[:1] >= 6), 0.0, x),
        lambda x: F.leaky_relu(x, -0.5),  # its gradient has a mask of its input
        lambda x: x * (x + 3).clamp(0, 7) / 6,
        lambda x: torch.where(x > 0, x, x.square()),
        lambda x: torch.where(x.double() <= 0, 0.0, x),
        lambda x: torch.where(x[:, :1] <= 0, 0.0, x),
    ],
)
def test_what_is_alike_stays(activation: Callable[[Tensor], Tensor]) -> None:
    assert assert_trains_like_eager(activation) == 0
